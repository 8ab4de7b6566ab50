//! The rows of the Insert Benchmark and their seeded generator.
//!
//! A row is a pure function of (seed, table, transaction id), so any row can be made again when
//! contents are checked, and clients need no shared state. The columns and indexes are those of
//! the classic `iibench` table `purchases_index`:
//!
//! | column          | values                                                              |
//! |-----------------|---------------------------------------------------------------------|
//! | `transactionid` | 1, 2, 3, ... per table: the primary key                             |
//! | `dateandtime`   | seconds since 1970; advances by one every [`ROWS_PER_SECOND`] rows  |
//! | `cashregisterid`| 0..999, random                                                      |
//! | `customerid`    | 0..99,999, random                                                   |
//! | `productid`     | 0..9,999, random                                                    |
//! | `price`         | 0..499, random                                                      |
//! | `data`          | 10 to 20 characters; the first half random, the rest `a`            |
//!
//! `dateandtime` is derived from the id rather than from a clock, so that a table's contents do not
//! depend on the speed of the engine: the third index sees the same keys in every run.

/// Distinct cash registers.
pub const CASH_REGISTERS: u32 = 1_000;
/// Distinct customers.
pub const CUSTOMERS: u32 = 100_000;
/// Distinct products.
pub const PRODUCTS: u32 = 10_000;
/// Distinct prices.
pub const PRICES: u32 = 500;
/// Rows of one table that share one second of `dateandtime`.
pub const ROWS_PER_SECOND: u64 = 10_000;
/// `dateandtime` of a table's first row.
pub const FIRST_SECOND: u64 = 1_500_000_000;
/// Longest `data`, in bytes.
pub const DATA_MAX: usize = 20;
const DATA_MIN: usize = 10;

/// One row of the benchmark's table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Row {
    /// Primary key.
    pub transactionid: u64,
    /// Seconds since 1970.
    pub dateandtime: u64,
    /// Random, below [`CASH_REGISTERS`].
    pub cashregisterid: u32,
    /// Random, below [`CUSTOMERS`].
    pub customerid: u32,
    /// Random, below [`PRODUCTS`].
    pub productid: u32,
    /// Random, below [`PRICES`].
    pub price: u32,
    /// Half random text.
    pub data: Data,
}

/// The text column, held in place so that generating a row allocates nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Data {
    bytes: [u8; DATA_MAX],
    len: u8,
}

impl Data {
    /// Text from an engine.
    ///
    /// # Panics
    /// When it is longer than [`DATA_MAX`] or not ASCII: the benchmark never stored that.
    pub fn new(text: &[u8]) -> Self {
        assert!(text.len() <= DATA_MAX && text.is_ascii(), "data column not of this benchmark");
        let mut bytes = [0; DATA_MAX];
        bytes[..text.len()].copy_from_slice(text);
        Data { bytes, len: text.len() as u8 }
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(self.as_bytes()).expect("data is ASCII by construction")
    }

    /// The text's bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

/// The three columns of a secondary index, in index order.
pub type IndexKey = [u64; 3];

/// One of the three secondary indexes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Secondary {
    /// (productid, customerid, price)
    Market,
    /// (cashregisterid, customerid, price)
    Register,
    /// (price, dateandtime, customerid)
    Price,
}

impl Secondary {
    /// All of them, in the order in which they are created and scanned.
    pub const ALL: [Secondary; 3] = [Secondary::Market, Secondary::Register, Secondary::Price];

    /// The index's name, as `iibench` has it.
    pub fn name(self) -> &'static str {
        match self {
            Secondary::Market => "marketsegment",
            Secondary::Register => "registersegment",
            Secondary::Price => "pdc",
        }
    }

    /// The indexed columns.
    pub fn columns(self) -> [&'static str; 3] {
        match self {
            Secondary::Market => ["productid", "customerid", "price"],
            Secondary::Register => ["cashregisterid", "customerid", "price"],
            Secondary::Price => ["price", "dateandtime", "customerid"],
        }
    }

    /// The index's columns of `row`.
    pub fn key(self, row: &Row) -> IndexKey {
        match self {
            Secondary::Market => [row.productid.into(), row.customerid.into(), row.price.into()],
            Secondary::Register => {
                [row.cashregisterid.into(), row.customerid.into(), row.price.into()]
            }
            Secondary::Price => [row.price.into(), row.dateandtime, row.customerid.into()],
        }
    }
}

/// Makes the rows of all tables from one seed.
#[derive(Debug, Clone, Copy)]
pub struct Generator {
    seed: u64,
}

impl Generator {
    /// A generator for `seed`.
    pub fn new(seed: u64) -> Self {
        Generator { seed }
    }

    /// The row `id` of `table`.
    pub fn row(&self, table: u32, id: u64) -> Row {
        let mut random = SplitMix::new(self.seed, table, id);
        let (a, b) = (random.next(), random.next());
        Row {
            transactionid: id,
            dateandtime: date_of(id),
            cashregisterid: below(a as u32, CASH_REGISTERS),
            customerid: below((a >> 32) as u32, CUSTOMERS),
            productid: below(b as u32, PRODUCTS),
            price: below((b >> 32) as u32, PRICES),
            data: data(random.next(), random.next()),
        }
    }

    /// Seed of what the run's step `step` draws on `table`, its first being 0. Each draws anew:
    /// were updates of a second step those of the first, they would change nothing.
    pub fn step_seed(&self, table: u32, step: u64) -> u64 {
        SplitMix::new(!self.seed, table, step).next()
    }

    /// Appends the rows `ids` of `table` to `rows`.
    pub fn rows(&self, table: u32, ids: std::ops::Range<u64>, rows: &mut Vec<Row>) {
        rows.extend(ids.map(|id| self.row(table, id)));
    }
}

/// `dateandtime` of the row `id`.
pub fn date_of(id: u64) -> u64 {
    FIRST_SECOND + id / ROWS_PER_SECOND
}

/// A place in `index` to start reading at, as a row whose id lies in `ids` might have it.
pub fn random_start(
    index: Secondary,
    ids: &std::ops::Range<u64>,
    random: &mut fastrand::Rng,
) -> IndexKey {
    let mut next = |limit: u32| u64::from(random.u32(0..limit));
    match index {
        Secondary::Market => [next(PRODUCTS), next(CUSTOMERS), 0],
        Secondary::Register => [next(CASH_REGISTERS), next(CUSTOMERS), 0],
        Secondary::Price => [next(PRICES), date_of(random.u64(ids.clone())), 0],
    }
}

fn below(random: u32, limit: u32) -> u32 {
    ((u64::from(random) * u64::from(limit)) >> 32) as u32
}

fn data(length: u64, letters: u64) -> Data {
    const ALPHABET: &[u8; 64] = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-";
    let len = DATA_MIN + below(length as u32, (DATA_MAX - DATA_MIN + 1) as u32) as usize;
    let mut bytes = [0; DATA_MAX];
    for (i, byte) in bytes[..len].iter_mut().enumerate() {
        *byte = if i < len / 2 { ALPHABET[(letters >> (6 * i)) as usize & 63] } else { b'a' };
    }
    Data { bytes, len: len as u8 }
}

/// SplitMix64 (Steele, Lea, Flood, OOPSLA 2014), started from three numbers. Kept here rather than
/// taken from a crate because the rows of a seed must never change.
struct SplitMix(u64);

impl SplitMix {
    fn new(seed: u64, table: u32, id: u64) -> Self {
        let mut mix = SplitMix(seed ^ (u64::from(table) << 40));
        let start = mix.next();
        SplitMix(start ^ id.wrapping_mul(0xd605_bbb5_8c8a_bbdb))
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_rows() {
        let show = |row: Row| {
            format!(
                "{} {} {} {} {} {} {}",
                row.transactionid,
                row.dateandtime,
                row.cashregisterid,
                row.customerid,
                row.productid,
                row.price,
                row.data.as_str()
            )
        };
        let generator = Generator::new(1);
        let rows = [(0, 1), (0, 2), (1, 1), (0, 1_000_000)];
        let shown: Vec<_> = rows.map(|(t, id)| show(generator.row(t, id))).into();
        assert_eq!(
            shown,
            [
                "1 1500000000 749 39589 656 357 l_QV9aiaaaaaaaa",
                "2 1500000000 510 95582 7265 221 Ucqn4uIMmaaaaaaaaaa",
                "1 1500000000 441 55685 1128 432 8gBDRcUFaaaaaaaa",
                "1000000 1500000100 792 82870 1109 318 V-EfSaaaaaa",
            ]
        );
    }

    #[test]
    fn columns_cover_their_ranges() {
        let generator = Generator::new(7);
        let rows: Vec<Row> = (1..200_000).map(|id| generator.row(0, id)).collect();
        let max = |column: fn(&Row) -> u32| rows.iter().map(column).max().unwrap();
        assert_eq!(max(|row| row.cashregisterid), CASH_REGISTERS - 1);
        assert_eq!(max(|row| row.productid), PRODUCTS - 1);
        assert_eq!(max(|row| row.price), PRICES - 1);
        assert!((CUSTOMERS - 10..CUSTOMERS).contains(&max(|row| row.customerid)));
        let lengths: std::collections::BTreeSet<_> =
            rows.iter().map(|row| row.data.as_str().len()).collect();
        assert_eq!(lengths, (10..=20).collect());
        let mean = rows.iter().map(|row| f64::from(row.customerid)).sum::<f64>() / 199_999.0;
        assert!((mean - 49_999.5).abs() < 300.0, "mean customer {mean}");
    }

    #[test]
    fn half_of_data_is_random() {
        let generator = Generator::new(7);
        for id in 1..1000 {
            let row = generator.row(0, id);
            let text = row.data.as_bytes();
            assert!(text[text.len() / 2..].iter().all(|&byte| byte == b'a'));
        }
    }

    #[test]
    fn tables_and_seeds_differ() {
        let row = |seed, table| Generator::new(seed).row(table, 5);
        assert_ne!(row(1, 0), row(1, 1));
        assert_ne!(row(1, 0), row(2, 0));
        assert_eq!(row(1, 0), row(1, 0));
    }

    #[test]
    fn starts_lie_inside_the_table() {
        let mut random = fastrand::Rng::with_seed(3);
        for _ in 0..1000 {
            let start = random_start(Secondary::Price, &(20_000..40_000), &mut random);
            assert!(start[0] < 500);
            assert!((FIRST_SECOND + 2..FIRST_SECOND + 4).contains(&start[1]));
        }
    }
}
