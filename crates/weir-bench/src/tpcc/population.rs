//! What the tables hold before the first transaction (clause 4.3.3.1).

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use weir::OwnedValue;

use super::random::{DISTRICTS, Random, Size};
use super::store::{Loader, START};
use super::tables::{
    TableDefinition, customer, district, history, item, new_orders, order_line, orders, stock,
    warehouse,
};
use crate::accounting::thread_cpu;
use crate::error::Result;
use crate::phase::Live;

/// A row, in the order of its table's columns.
pub type Row = Vec<OwnedValue>;

/// Rows inserted at a time.
const BATCH: usize = 500;

/// A history row's number when the tables are filled: those of runs come behind.
pub fn first_history_number(size: Size) -> i64 {
    i64::from(size.warehouses) * i64::from(DISTRICTS) * i64::from(size.customers) + 1
}

/// All rows of all tables.
pub fn rows_of(size: Size) -> u64 {
    let (customers, items) = (u64::from(size.customers), u64::from(size.items));
    let undelivered = u64::from(size.customers - size.first_new_order() + 1);
    // Order lines: 10 in the mean.
    let of_district = 1 + 2 * customers + customers + undelivered + 10 * customers;
    items + u64::from(size.warehouses) * (1 + items + u64::from(DISTRICTS) * of_district)
}

/// Fills the tables of some warehouses.
pub struct Filler<'a> {
    loader: Box<dyn Loader + 'a>,
    random: Random,
    size: Size,
    batch: Vec<Row>,
    live: &'a Live,
    stop: &'a AtomicBool,
    began: Duration,
    in_engine: Duration,
}

fn number(value: u32) -> OwnedValue {
    OwnedValue::I64(value.into())
}

fn text(value: impl Into<String>) -> OwnedValue {
    OwnedValue::Text(value.into())
}

impl<'a> Filler<'a> {
    /// A filler with random numbers of its own.
    pub fn new(
        loader: Box<dyn Loader + 'a>,
        size: Size,
        seed: u64,
        live: &'a Live,
        stop: &'a AtomicBool,
    ) -> Self {
        let random = Random::new(size, seed);
        let (began, in_engine) = (thread_cpu(), Duration::ZERO);
        Filler { loader, random, size, batch: Vec::new(), live, stop, began, in_engine }
    }

    /// Processor time that it has taken to make rows.
    pub fn own_cpu(&self) -> Duration {
        (thread_cpu() - self.began).saturating_sub(self.in_engine)
    }

    fn put(&mut self, table: &TableDefinition, row: Row) -> Result<()> {
        self.batch.push(row);
        if self.batch.len() < BATCH { Ok(()) } else { self.flush(table) }
    }

    fn flush(&mut self, table: &TableDefinition) -> Result<()> {
        if !self.batch.is_empty() {
            let began = thread_cpu();
            self.loader.insert(table, &self.batch)?;
            self.in_engine += thread_cpu() - began;
            self.live.inserts.fetch_add(self.batch.len() as u64, Ordering::Relaxed);
        }
        self.batch.clear();
        Ok(())
    }

    fn fill(
        &mut self,
        table: &TableDefinition,
        rows: impl IntoIterator<Item = u32>,
        make: impl Fn(&mut Random, u32) -> Row,
    ) -> Result<()> {
        for row in rows {
            if self.stop.load(Ordering::Relaxed) {
                break;
            }
            let row = make(&mut self.random, row);
            self.put(table, row)?;
        }
        self.flush(table)
    }

    /// The items, which all warehouses have in common.
    ///
    /// # Errors
    /// The engine's.
    pub fn items(&mut self) -> Result<()> {
        self.fill(&item::TABLE, 1..=self.size.items, |random, id| {
            let image = number(random.number(1, 10_000));
            let name = text(random.text(14, 24));
            let price = number(random.number(100, 10_000));
            vec![number(id), image, name, price, text(random.data())]
        })
    }

    /// A warehouse with everything in it.
    ///
    /// # Errors
    /// The engine's.
    pub fn warehouse(&mut self, w: u32) -> Result<()> {
        self.fill(&warehouse::TABLE, [w], |random, w| {
            let mut row = vec![number(w), text(random.text(6, 10))];
            row.extend(address(random));
            row.extend([tax(random), OwnedValue::I64(30_000_000)]);
            row
        })?;
        self.fill(&stock::TABLE, 1..=self.size.items, |random, id| {
            let mut row = vec![number(w), number(id), number(random.number(10, 100))];
            row.extend((0..DISTRICTS).map(|_| text(random.text(24, 24))));
            row.extend([0, 0, 0].map(number));
            row.push(text(random.data()));
            row
        })?;
        let next_order = self.size.customers + 1;
        self.fill(&district::TABLE, 1..=DISTRICTS, |random, d| {
            let mut row = vec![number(w), number(d), text(random.text(6, 10))];
            row.extend(address(random));
            row.extend([tax(random), OwnedValue::I64(3_000_000), number(next_order)]);
            row
        })?;
        for d in 1..=DISTRICTS {
            self.customers(w, d)?;
            self.orders(w, d)?;
        }
        Ok(())
    }

    fn customers(&mut self, w: u32, d: u32) -> Result<()> {
        let customers = 1..=self.size.customers;
        self.fill(&customer::TABLE, customers.clone(), |random, c| {
            let last = text(random.last_name_of(c));
            let mut row = vec![number(w), number(d), number(c)];
            row.extend([text(random.text(8, 16)), text("OE"), last]);
            row.extend(address(random));
            let credit = if random.number(1, 10) == 1 { "BC" } else { "GC" };
            row.extend([text(random.digits(16)), OwnedValue::I64(START), text(credit)]);
            row.extend([OwnedValue::I64(5_000_000), number(random.number(0, 5000))]);
            row.extend([-1000, 1000, 1, 0].map(OwnedValue::I64));
            row.push(text(random.text(300, 500)));
            row
        })?;
        let before = (i64::from(w - 1) * i64::from(DISTRICTS) + i64::from(d - 1))
            * i64::from(self.size.customers);
        self.fill(&history::TABLE, customers, |random, c| {
            let mut row = vec![OwnedValue::I64(before + i64::from(c))];
            row.extend([c, d, w, d, w].map(number));
            row.extend([OwnedValue::I64(START), OwnedValue::I64(1000), text(random.text(12, 24))]);
            row
        })
    }

    fn orders(&mut self, w: u32, d: u32) -> Result<()> {
        let (all, first_new) = (1..=self.size.customers, self.size.first_new_order());
        let customers = self.random.permutation(self.size.customers);
        let counts: Vec<u32> = all.clone().map(|_| self.random.number(5, 15)).collect();
        let of = |order: u32| order as usize - 1;
        self.fill(&orders::TABLE, all.clone(), |random, o| {
            let carrier = match o < first_new {
                true => number(random.number(1, 10)),
                false => OwnedValue::Null,
            };
            let mut row = [w, d, o, customers[of(o)]].map(number).to_vec();
            row.extend([OwnedValue::I64(START), carrier, number(counts[of(o)]), number(1)]);
            row
        })?;
        for o in all.clone() {
            self.order_lines(w, d, o, counts[of(o)])?;
        }
        self.flush(&order_line::TABLE)?;
        self.fill(&new_orders::TABLE, first_new..=self.size.customers, |_, o| {
            [w, d, o].map(number).to_vec()
        })
    }

    fn order_lines(&mut self, w: u32, d: u32, o: u32, count: u32) -> Result<()> {
        let (is_delivered, items) = (o < self.size.first_new_order(), self.size.items);
        for line in 1..=count {
            let random = &mut self.random;
            let mut row = [w, d, o, line, random.number(1, items), w].map(number).to_vec();
            let (delivered, amount) = match is_delivered {
                true => (OwnedValue::I64(START), 0),
                false => (OwnedValue::Null, random.number(1, 999_999)),
            };
            row.extend([delivered, number(5), number(amount), text(random.text(24, 24))]);
            self.put(&order_line::TABLE, row)?;
        }
        Ok(())
    }
}

/// Street (two lines), city, state and zip code.
fn address(random: &mut Random) -> [OwnedValue; 5] {
    let [one, two, city] = [(); 3].map(|()| text(random.text(10, 20)));
    [one, two, city, text(random.text(2, 2)), text(random.zip())]
}

fn tax(random: &mut Random) -> OwnedValue {
    number(random.number(0, 2000))
}
