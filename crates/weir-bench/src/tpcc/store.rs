//! What TPC-C asks of an engine, and what must hold of its tables whatever happened.

use std::collections::BTreeMap;

use super::population::Row;
use super::tables::TableDefinition;
use super::transactions::Transaction;
use crate::error::{Error, Result};

/// The time that rows have when the tables are filled, and orders later: seconds since 1970.
pub const START: i64 = 1_767_225_600;

/// An item of which, once an order has been taken, less than this would be left is first restocked
/// by [`REFILL`].
pub const LEAST_LEFT: i64 = 10;
/// See [`LEAST_LEFT`].
pub const REFILL: i64 = 91;

/// An engine with the nine tables.
pub trait Store: Send + Sync {
    /// Makes the tables, empty.
    ///
    /// # Errors
    /// Also when there are such tables.
    fn create(&self) -> Result<()>;
    /// Connects somebody who fills the tables.
    ///
    /// # Errors
    /// The engine's.
    fn loader(&self) -> Result<Box<dyn Loader + '_>>;
    /// Connects a client.
    ///
    /// # Errors
    /// The engine's.
    fn terminal(&self) -> Result<Box<dyn Terminal + '_>>;
    /// Sums of what the tables hold.
    ///
    /// # Errors
    /// The engine's.
    fn books(&self) -> Result<Books>;
}

/// Fills tables.
pub trait Loader {
    /// Inserts rows, all in one transaction.
    ///
    /// # Errors
    /// The engine's.
    fn insert(&mut self, table: &TableDefinition, rows: &[Row]) -> Result<()>;
}

/// One client's connection.
pub trait Terminal {
    /// Runs a transaction. `history`: the number of the row that a payment leaves.
    ///
    /// # Errors
    /// [`Error::Conflict`] where it was rolled back because of others and is to be run again.
    fn run(&mut self, transaction: &Transaction, history: i64) -> Result<Outcome>;
}

/// How a transaction ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It committed.
    Committed,
    /// It was rolled back because there is no such item, as one new order of a hundred is to be.
    RolledBack,
}

/// What is left of a district's data.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct District {
    /// `d_ytd`, cents.
    pub ytd: i64,
    /// `d_next_o_id`.
    pub next_order: i64,
    /// The highest `o_id`.
    pub orders_last: i64,
    /// The sum of `o_ol_cnt`.
    pub lines_of_orders: i64,
    /// How many order lines there are.
    pub lines: i64,
    /// Orders that haven't been delivered: how many.
    pub new_orders: i64,
    /// The lowest of them.
    pub new_orders_first: i64,
    /// The highest of them.
    pub new_orders_last: i64,
}

/// Sums of all tables, by warehouse, and by warehouse and district.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Books {
    /// `w_ytd`, cents.
    pub warehouses: BTreeMap<i64, i64>,
    /// Of the districts.
    pub districts: BTreeMap<(i64, i64), District>,
}

impl Books {
    /// Checks the standard's conditions 1 to 4 (clause 3.3.2), and that there are as many orders as
    /// the clients were told of: `orders`, those included that the tables began with.
    ///
    /// # Errors
    /// [`Error::Contents`] with what doesn't hold.
    pub fn check(&self, engine: &'static str, orders: u64) -> Result<()> {
        let wrong = |message: String| Err(Error::Contents { engine, message });
        for (w, ytd) in &self.warehouses {
            let districts = self.districts.range((*w, 0)..(w + 1, 0));
            let sum: i64 = districts.map(|(_, district)| district.ytd).sum();
            if *ytd != sum {
                return wrong(format!("warehouse {w} took {ytd} cents, its districts {sum}"));
            }
        }
        for ((w, d), of) in &self.districts {
            let place = format!("warehouse {w}, district {d}");
            let undelivered = of.new_orders_last - of.new_orders_first + 1;
            if of.next_order - 1 != of.orders_last {
                let (next, last) = (of.next_order, of.orders_last);
                return wrong(format!("{place}: the next order is {next}, the last one {last}"));
            }
            if of.new_orders > 0 && of.new_orders_last != of.orders_last {
                let (new, last) = (of.new_orders_last, of.orders_last);
                return wrong(format!("{place}: new orders end at {new}, orders at {last}"));
            }
            if of.new_orders > 0 && undelivered != of.new_orders {
                let count = of.new_orders;
                return wrong(format!(
                    "{place}: {count} new orders, {undelivered} by their numbers"
                ));
            }
            if of.lines != of.lines_of_orders {
                let (lines, named) = (of.lines, of.lines_of_orders);
                return wrong(format!("{place}: {lines} order lines, orders tell of {named}"));
            }
        }
        let found: i64 = self.districts.values().map(|district| district.orders_last).sum();
        if found != orders as i64 {
            return wrong(format!("{found} orders, the clients were told of {orders}"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn books() -> Books {
        let district = District {
            ytd: 500,
            next_order: 31,
            orders_last: 30,
            lines_of_orders: 300,
            lines: 300,
            new_orders: 9,
            new_orders_first: 22,
            new_orders_last: 30,
        };
        let districts = [((1, 1), district), ((1, 2), district), ((2, 1), district)];
        Books { warehouses: [(1, 1000), (2, 500)].into(), districts: districts.into() }
    }

    #[test]
    fn books_that_agree() {
        books().check("any", 90).unwrap();
        let mut delivered = books();
        let district = delivered.districts.get_mut(&(1, 1)).unwrap();
        (district.new_orders, district.new_orders_first, district.new_orders_last) = (0, 0, 0);
        delivered.check("any", 90).unwrap();
    }

    #[test]
    fn each_condition_is_looked_at() {
        let wrong = |change: fn(&mut District), told: &str| {
            let mut books = books();
            change(books.districts.get_mut(&(1, 2)).unwrap());
            let error = books.check("any", 90).unwrap_err().to_string();
            assert!(error.contains(told), "{error}");
        };
        wrong(|district| district.ytd += 1, "warehouse 1 took 1000 cents, its districts 1001");
        wrong(|district| district.next_order += 1, "the next order is 32");
        wrong(|district| district.new_orders_last += 1, "new orders end at 31, orders at 30");
        wrong(|district| district.new_orders_first -= 1, "9 new orders, 10 by their numbers");
        wrong(|district| district.lines -= 1, "299 order lines, orders tell of 300");
        let told = |orders| books().check("any", orders).unwrap_err().to_string();
        assert!(told(91).contains("90 orders, the clients were told of 91"));
    }
}
