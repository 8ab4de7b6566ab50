//! The five transactions' inputs (clauses 2.4 to 2.8), and how often each comes (5.2.3).

use serde::{Deserialize, Serialize};

use super::random::{DISTRICTS, Random, Size};

/// Which of the five.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// An order of five to fifteen items.
    NewOrder,
    /// A customer pays.
    Payment,
    /// A customer's last order is looked at.
    OrderStatus,
    /// The oldest order of each district is delivered.
    Delivery,
    /// Which of the items ordered last are few.
    StockLevel,
}

impl Kind {
    /// All, in the standard's order.
    pub const ALL: [Kind; 5] =
        [Kind::NewOrder, Kind::Payment, Kind::OrderStatus, Kind::Delivery, Kind::StockLevel];

    /// Its name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Kind::NewOrder => "new order",
            Kind::Payment => "payment",
            Kind::OrderStatus => "order status",
            Kind::Delivery => "delivery",
            Kind::StockLevel => "stock level",
        }
    }

    /// Of a hundred transactions, so many are of this kind.
    fn percent(self) -> u32 {
        match self {
            Kind::NewOrder => 45,
            Kind::Payment => 43,
            Kind::OrderStatus | Kind::Delivery | Kind::StockLevel => 4,
        }
    }
}

/// How a customer is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Who {
    /// By number.
    Id(u32),
    /// By last name: of those who bear it the one in the middle, by first name.
    LastName(String),
}

/// One line of a new order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Line {
    /// The item; one that there isn't in the last line of an order that is to be rolled back.
    pub item: u32,
    /// The warehouse that has it.
    pub supply_w: u32,
    /// How many.
    pub quantity: u32,
}

/// A transaction's inputs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Transaction {
    /// [`Kind::NewOrder`].
    NewOrder {
        /// Warehouse.
        w: u32,
        /// District.
        d: u32,
        /// Customer.
        c: u32,
        /// What is ordered, by warehouse and item, so that no two orders wait for each other's
        /// stock.
        lines: Vec<Line>,
    },
    /// [`Kind::Payment`].
    Payment {
        /// Warehouse.
        w: u32,
        /// District.
        d: u32,
        /// The customer's warehouse.
        c_w: u32,
        /// The customer's district.
        c_d: u32,
        /// The customer.
        who: Who,
        /// Cents.
        amount: u32,
    },
    /// [`Kind::OrderStatus`].
    OrderStatus {
        /// Warehouse.
        w: u32,
        /// District.
        d: u32,
        /// The customer.
        who: Who,
    },
    /// [`Kind::Delivery`].
    Delivery {
        /// Warehouse.
        w: u32,
        /// Who delivers.
        carrier: u32,
    },
    /// [`Kind::StockLevel`].
    StockLevel {
        /// Warehouse.
        w: u32,
        /// District.
        d: u32,
        /// Less than this is few.
        threshold: u32,
    },
}

impl Transaction {
    /// Which of the five it is.
    pub fn kind(&self) -> Kind {
        match self {
            Transaction::NewOrder { .. } => Kind::NewOrder,
            Transaction::Payment { .. } => Kind::Payment,
            Transaction::OrderStatus { .. } => Kind::OrderStatus,
            Transaction::Delivery { .. } => Kind::Delivery,
            Transaction::StockLevel { .. } => Kind::StockLevel,
        }
    }
}

/// Makes transactions.
pub struct Deck {
    random: Random,
    size: Size,
}

impl Deck {
    /// A sequence of its own for each seed.
    pub fn new(size: Size, seed: u64) -> Deck {
        Deck { random: Random::new(size, seed), size }
    }

    /// The next one, of whichever kind.
    pub fn draw(&mut self) -> Transaction {
        let mut left = self.random.number(0, 99);
        let drawn = Kind::ALL.into_iter().find(|kind| {
            let is_it = left < kind.percent();
            left = left.wrapping_sub(kind.percent());
            is_it
        });
        self.make(drawn.expect("the percentages make a hundred"))
    }

    fn make(&mut self, kind: Kind) -> Transaction {
        let (w, d) = (self.random.warehouse(), self.random.number(1, DISTRICTS));
        match kind {
            Kind::NewOrder => {
                let c = self.random.customer();
                Transaction::NewOrder { w, d, c, lines: self.lines(w) }
            }
            Kind::Payment => {
                let (c_w, c_d) = match self.random.number(1, 100) {
                    1..=85 => (w, d),
                    _ => (self.random.other_warehouse(w), self.random.number(1, DISTRICTS)),
                };
                let who = self.who();
                let amount = self.random.number(100, 500_000);
                Transaction::Payment { w, d, c_w, c_d, who, amount }
            }
            Kind::OrderStatus => Transaction::OrderStatus { w, d, who: self.who() },
            Kind::Delivery => Transaction::Delivery { w, carrier: self.random.number(1, 10) },
            Kind::StockLevel => {
                Transaction::StockLevel { w, d, threshold: self.random.number(10, 20) }
            }
        }
    }

    fn who(&mut self) -> Who {
        match self.random.number(1, 100) {
            1..=60 => Who::LastName(self.random.last_name()),
            _ => Who::Id(self.random.customer()),
        }
    }

    fn lines(&mut self, w: u32) -> Vec<Line> {
        let random = &mut self.random;
        let count = random.number(5, 15);
        let mut lines: Vec<Line> = (0..count)
            .map(|_| {
                let item = random.item();
                let supply_w =
                    if random.number(1, 100) == 1 { random.other_warehouse(w) } else { w };
                Line { item, supply_w, quantity: random.number(1, 10) }
            })
            .collect();
        lines.sort_by_key(|line| (line.supply_w, line.item));
        if random.number(1, 100) == 1 {
            lines.last_mut().expect("there are five").item = self.size.items + 1;
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn transactions_come_as_often_as_the_standard_says() {
        let size = Size::standard(10);
        let mut deck = Deck::new(size, 1);
        let drawn: Vec<_> = (0..100_000).map(|_| deck.draw()).collect();
        let mut count = BTreeMap::new();
        drawn.iter().for_each(|one| *count.entry(one.kind()).or_insert(0u32) += 1);
        for kind in Kind::ALL {
            let expected = kind.percent() * 1000;
            assert!(count[&kind].abs_diff(expected) < 600, "{kind:?}: {}", count[&kind]);
        }
        let share = |is_one: fn(&Transaction) -> Option<bool>| {
            let asked: Vec<_> = drawn.iter().filter_map(is_one).collect();
            asked.iter().filter(|yes| **yes).count() as f64 / asked.len() as f64
        };
        let unused = share(|one| match one {
            Transaction::NewOrder { lines, .. } => Some(lines.iter().any(|l| l.item > 100_000)),
            _ => None,
        });
        assert!((0.008..0.012).contains(&unused), "{unused} of the orders are to be rolled back");
        let remote = share(|one| match one {
            Transaction::Payment { w, c_w, .. } => Some(w != c_w),
            _ => None,
        });
        assert!((0.14..0.16).contains(&remote), "{remote} of the payments are remote");
        let by_name = share(|one| match one {
            Transaction::Payment { who, .. } => Some(matches!(who, Who::LastName(_))),
            _ => None,
        });
        assert!((0.59..0.61).contains(&by_name), "{by_name} of the payments are by name");
    }

    #[test]
    fn seeds_make_sequences() {
        let draw = |seed| {
            let mut deck = Deck::new(Size::standard(2), seed);
            (0..50).map(|_| deck.draw()).collect::<Vec<_>>()
        };
        assert!(draw(1) == draw(1) && draw(1) != draw(2));
    }
}
