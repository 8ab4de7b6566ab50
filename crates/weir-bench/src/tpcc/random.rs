//! Random values of TPC-C: clauses 2.1.6 (NURand), 4.3.2 (texts) and 4.3.3 (what the tables begin
//! with).

use fastrand::Rng;

/// How many rows there are of what.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size {
    /// Warehouses.
    pub warehouses: u32,
    /// Customers of a district, and orders that it begins with.
    pub customers: u32,
    /// Items, each of which every warehouse has in stock.
    pub items: u32,
}

/// Districts of a warehouse.
pub const DISTRICTS: u32 = 10;

impl Size {
    /// The standard's, which grows with the number of warehouses alone.
    pub const fn standard(warehouses: u32) -> Size {
        Size { warehouses, customers: 3000, items: 100_000 }
    }

    /// Of a district's first orders, the first one that hasn't been delivered: the last three
    /// tenths.
    pub fn first_new_order(self) -> u32 {
        self.customers - self.customers * 3 / 10 + 1
    }
}

/// The run's constants of NURand; names are loaded with another one, which differs by 66 (clause
/// 2.1.6.1).
const C_LAST_LOAD: u32 = 157;
const C_LAST_RUN: u32 = 223;
const C_CUSTOMER: u32 = 259;
const C_ITEM: u32 = 7911;

const SYLLABLES: [&str; 10] =
    ["BAR", "OUGHT", "ABLE", "PRI", "PRES", "ESE", "ANTI", "CALLY", "ATION", "EING"];
const LETTERS: &[u8] = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";

/// Random values for tables of one size.
pub struct Random {
    /// The generator.
    pub rng: Rng,
    size: Size,
}

impl Random {
    /// A sequence of its own for each seed.
    pub fn new(size: Size, seed: u64) -> Random {
        Random { rng: Rng::with_seed(seed), size }
    }

    /// From `low` to `high`, each as likely as any other.
    pub fn number(&mut self, low: u32, high: u32) -> u32 {
        self.rng.u32(low..=high)
    }

    /// From `low` to `high`, some far more likely than others.
    fn nonuniform(&mut self, a: u32, c: u32, low: u32, high: u32) -> u32 {
        (((self.number(0, a) | self.number(low, high)) + c) % (high - low + 1)) + low
    }

    /// A warehouse.
    pub fn warehouse(&mut self) -> u32 {
        self.number(1, self.size.warehouses)
    }

    /// A warehouse that isn't `home`, if there is another.
    pub fn other_warehouse(&mut self, home: u32) -> u32 {
        if self.size.warehouses == 1 {
            return home;
        }
        let other = self.number(1, self.size.warehouses - 1);
        if other < home { other } else { other + 1 }
    }

    /// A customer of a district.
    pub fn customer(&mut self) -> u32 {
        self.nonuniform(1023, C_CUSTOMER, 1, self.size.customers)
    }

    /// An item.
    pub fn item(&mut self) -> u32 {
        self.nonuniform(8191, C_ITEM, 1, self.size.items)
    }

    /// A last name that somebody has, as a run asks for it.
    pub fn last_name(&mut self) -> String {
        let last = self.size.customers.min(1000) - 1;
        last_name(self.nonuniform(255, C_LAST_RUN, 0, last))
    }

    /// The last name of a customer when the tables are filled: the first thousand have one each.
    pub fn last_name_of(&mut self, customer: u32) -> String {
        match customer {
            1..=1000 => last_name(customer - 1),
            _ => last_name(self.nonuniform(255, C_LAST_LOAD, 0, 999)),
        }
    }

    /// Letters and digits.
    pub fn text(&mut self, low: u32, high: u32) -> String {
        let length = self.number(low, high);
        (0..length).map(|_| char::from(LETTERS[self.rng.usize(..LETTERS.len())])).collect()
    }

    /// Digits.
    pub fn digits(&mut self, length: u32) -> String {
        (0..length).map(|_| char::from(b'0' + self.rng.u8(..10))).collect()
    }

    /// A zip code.
    pub fn zip(&mut self) -> String {
        self.digits(4) + "11111"
    }

    /// A text of which every tenth has `ORIGINAL` in it.
    pub fn data(&mut self) -> String {
        let mut text = self.text(26, 50);
        if self.number(1, 10) == 1 {
            let at = self.rng.usize(..=text.len() - ORIGINAL.len());
            text.replace_range(at..at + ORIGINAL.len(), ORIGINAL);
        }
        text
    }

    /// The numbers from 1 to `last` in a random order.
    pub fn permutation(&mut self, last: u32) -> Vec<u32> {
        let mut numbers: Vec<u32> = (1..=last).collect();
        self.rng.shuffle(&mut numbers);
        numbers
    }
}

/// What goods that carry a brand's name have in their data.
pub const ORIGINAL: &str = "ORIGINAL";

/// Three syllables, one for each digit of a number below 1,000.
fn last_name(number: u32) -> String {
    [number / 100, number / 10 % 10, number % 10].map(|digit| SYLLABLES[digit as usize]).concat()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn last_names_have_a_syllable_for_each_digit() {
        assert_eq!(last_name(371), "PRICALLYOUGHT");
        assert_eq!(last_name(40), "BARPRESBAR");
        let delta = C_LAST_RUN.abs_diff(C_LAST_LOAD);
        assert!((65..=119).contains(&delta) && delta != 96 && delta != 112, "clause 2.1.6.1");
    }

    #[test]
    fn values_are_in_their_ranges_and_reach_both_ends() {
        let size = Size { warehouses: 3, customers: 30, items: 100 };
        let mut random = Random::new(size, 7);
        let mut seen = |make: fn(&mut Random) -> u32| -> BTreeSet<u32> {
            (0..5000).map(|_| make(&mut random)).collect()
        };
        assert_eq!(seen(Random::customer), (1..=30).collect());
        assert_eq!(seen(Random::item), (1..=100).collect());
        assert_eq!(seen(|random| random.other_warehouse(2)), [1, 3].into());
        let names: BTreeSet<_> = (0..5000).map(|_| random.last_name()).collect();
        let had: BTreeSet<_> = (1..=30).map(|customer| random.last_name_of(customer)).collect();
        assert_eq!(names, had);
        let mut order = random.permutation(30);
        order.sort_unstable();
        assert_eq!(order, (1..=30).collect::<Vec<_>>());
    }

    #[test]
    fn some_customers_and_items_are_asked_for_far_more_than_others() {
        let mut random = Random::new(Size::standard(1), 1);
        let mut count = vec![0u32; 3001];
        (0..300_000).for_each(|_| count[random.customer() as usize] += 1);
        count.sort_unstable();
        let tenth: u32 = count[2701..].iter().sum();
        assert!(tenth > 60_000, "a tenth of the customers gets {tenth} of 300,000");
    }

    #[test]
    fn every_tenth_text_is_original() {
        let mut random = Random::new(Size::standard(1), 1);
        let texts: Vec<_> = (0..10_000).map(|_| random.data()).collect();
        assert!(texts.iter().all(|text| (26..=50).contains(&text.len())));
        let original = texts.iter().filter(|text| text.contains(ORIGINAL)).count();
        assert!((800..1200).contains(&original), "{original} of 10,000");
        assert_eq!(Size::standard(1).first_new_order(), 2101);
    }
}
