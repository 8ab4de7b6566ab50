//! TPC-C on a server, with the statements that other drivers of it for MySQL send: prepared once,
//! each a round trip.

use std::fmt::Write;

use mysql::prelude::Queryable;
use mysql::{Conn, Params};
use weir::OwnedValue;

use super::population::Row;
use super::random::DISTRICTS;
use super::store::{Books, LEAST_LEFT, Loader, Outcome, REFILL, START, Store, Terminal};
use super::tables::{Column, Kind, TABLES, TableDefinition};
use super::transactions::{Line, Transaction, Who};
use crate::engines::sql::Server;
use crate::engines::sql::target::{NAME, failed};
use crate::environment::date_time;
use crate::error::{Error, Result};

impl Kind {
    /// As a column's definition has it.
    fn sql(self) -> String {
        let name = match self {
            Kind::Number | Kind::NumberOrNull => "INT".into(),
            Kind::Long => "BIGINT".into(),
            Kind::Money => "DECIMAL(12,2)".into(),
            Kind::Rate => "DECIMAL(4,4)".into(),
            Kind::Text(length) => format!("VARCHAR({length})"),
            Kind::Time | Kind::TimeOrNull => "DATETIME".into(),
        };
        if self.is_nullable() { name } else { name + " NOT NULL" }
    }

    /// A value as a statement has it. Texts are letters and digits.
    fn literal(self, value: &OwnedValue, out: &mut String) {
        let written = match (self, value) {
            (Kind::Money, OwnedValue::I64(cents)) => write!(out, "{}", money(*cents)),
            (Kind::Rate, OwnedValue::I64(rate)) => write!(out, "0.{rate:04}"),
            (Kind::Time | Kind::TimeOrNull, OwnedValue::I64(at)) => {
                write!(out, "'{}'", date_time(*at))
            }
            (_, OwnedValue::I64(number)) => write!(out, "{number}"),
            (_, OwnedValue::Text(text)) => write!(out, "'{text}'"),
            _ => write!(out, "NULL"),
        };
        written.expect("a string has room");
    }
}

/// Cents as an amount.
fn money(cents: i64) -> String {
    let sign = if cents < 0 { "-" } else { "" };
    format!("{sign}{}.{:02}", cents.abs() / 100, cents.abs() % 100)
}

fn create_table(table: &TableDefinition, engine: &str) -> String {
    let column = |(name, kind): &Column| format!("{name} {}", kind.sql());
    let mut parts: Vec<String> = table.columns.iter().map(column).collect();
    parts.push(format!("PRIMARY KEY ({})", table.primary_key.join(", ")));
    if let Some((name, columns)) = table.index {
        parts.push(format!("KEY {name} ({})", columns.join(", ")));
    }
    format!("CREATE TABLE {} ({}) ENGINE={engine}", table.name, parts.join(", "))
}

impl Store for Server {
    fn create(&self) -> Result<()> {
        let names = TABLES.map(|table| table.name.to_string());
        self.refuse_tables(&names)?;
        for table in &TABLES {
            self.make_table(table.name, &create_table(table, self.table_engine()))?;
        }
        Ok(())
    }

    fn loader(&self) -> Result<Box<dyn Loader + '_>> {
        Ok(Box::new(SqlLoader { connection: self.connect()?, sql: String::new() }))
    }

    fn terminal(&self) -> Result<Box<dyn Terminal + '_>> {
        Ok(Box::new(SqlTerminal { connection: self.connect()? }))
    }

    fn books(&self) -> Result<Books> {
        let mut connection = self.connect()?;
        let mut books = Books::default();
        let warehouses = "SELECT w_id, CAST(w_ytd * 100 AS SIGNED) FROM warehouse";
        let warehouses: Vec<(i64, i64)> = rows(&mut connection, warehouses)?;
        books.warehouses.extend(warehouses);
        let of = &mut books.districts;
        let districts =
            "SELECT d_w_id, d_id, CAST(d_ytd * 100 AS SIGNED), d_next_o_id FROM district";
        for (w, d, ytd, next) in rows::<(i64, i64, i64, i64)>(&mut connection, districts)? {
            let district = of.entry((w, d)).or_default();
            (district.ytd, district.next_order) = (ytd, next);
        }
        let orders = "SELECT o_w_id, o_d_id, MAX(o_id), CAST(SUM(o_ol_cnt) AS SIGNED) FROM orders \
                      GROUP BY o_w_id, o_d_id";
        for (w, d, last, lines) in rows::<(i64, i64, i64, i64)>(&mut connection, orders)? {
            let district = of.entry((w, d)).or_default();
            (district.orders_last, district.lines_of_orders) = (last, lines);
        }
        let lines = "SELECT ol_w_id, ol_d_id, COUNT(*) FROM order_line GROUP BY ol_w_id, ol_d_id";
        for (w, d, count) in rows::<(i64, i64, i64)>(&mut connection, lines)? {
            of.entry((w, d)).or_default().lines = count;
        }
        let new = "SELECT no_w_id, no_d_id, COUNT(*), MIN(no_o_id), MAX(no_o_id) FROM new_orders \
                   GROUP BY no_w_id, no_d_id";
        for (w, d, count, first, last) in rows::<(i64, i64, i64, i64, i64)>(&mut connection, new)? {
            let district = of.entry((w, d)).or_default();
            (district.new_orders, district.new_orders_first, district.new_orders_last) =
                (count, first, last);
        }
        Ok(books)
    }
}

fn rows<T: mysql::prelude::FromRow>(connection: &mut Conn, sql: &str) -> Result<Vec<T>> {
    connection.query(sql).map_err(failed("check"))
}

struct SqlLoader {
    connection: Conn,
    /// The statement, kept for its memory.
    sql: String,
}

impl Loader for SqlLoader {
    fn insert(&mut self, table: &TableDefinition, rows: &[Row]) -> Result<()> {
        self.sql.clear();
        self.sql += "INSERT INTO ";
        self.sql += table.name;
        self.sql += " VALUES ";
        for (at, row) in rows.iter().enumerate() {
            self.sql += if at == 0 { "(" } else { "),(" };
            for (column, ((_, kind), value)) in table.columns.iter().zip(row).enumerate() {
                self.sql += if column == 0 { "" } else { "," };
                kind.literal(value, &mut self.sql);
            }
        }
        self.sql += ")";
        self.connection.query_drop(&self.sql).map_err(failed("insert"))
    }
}

struct SqlTerminal {
    connection: Conn,
}

impl Terminal for SqlTerminal {
    fn run(&mut self, transaction: &Transaction, history: i64) -> Result<Outcome> {
        self.say("BEGIN")?;
        let done = match transaction {
            Transaction::NewOrder { w, d, c, lines } => self.new_order(*w, *d, *c, lines),
            Transaction::Payment { w, d, c_w, c_d, who, amount } => {
                self.payment([*w, *d], [*c_w, *c_d], who, (*amount).into(), history)
            }
            Transaction::OrderStatus { w, d, who } => self.order_status(*w, *d, who),
            Transaction::Delivery { w, carrier } => self.delivery(*w, *carrier),
            Transaction::StockLevel { w, d, threshold } => self.stock_level(*w, *d, *threshold),
        };
        match done {
            Ok(Outcome::Committed) => self.say("COMMIT")?,
            Ok(Outcome::RolledBack) => self.say("ROLLBACK")?,
            // The first error says more than one of the rollback would.
            Err(_) => drop(self.say("ROLLBACK")),
        }
        done
    }
}

impl SqlTerminal {
    fn say(&mut self, sql: &str) -> Result<()> {
        self.connection.query_drop(sql).map_err(failed("transaction"))
    }

    /// Runs a statement that changes rows. The connection keeps what it has prepared.
    fn change(&mut self, sql: &str, values: impl Into<Params>) -> Result<()> {
        self.connection.exec_drop(sql, values).map_err(failed("change"))
    }

    /// A statement's first row, if it gives any.
    fn first<T: mysql::prelude::FromRow>(
        &mut self,
        sql: &str,
        values: impl Into<Params>,
    ) -> Result<Option<T>> {
        self.connection.exec_first(sql, values).map_err(failed("select"))
    }

    /// The row that there must be.
    fn one<T: mysql::prelude::FromRow>(
        &mut self,
        sql: &str,
        values: impl Into<Params>,
    ) -> Result<T> {
        let row = self.first(sql, values)?;
        row.ok_or_else(|| Error::Contents { engine: NAME, message: format!("no row: {sql}") })
    }

    fn new_order(&mut self, w: u32, d: u32, c: u32, lines: &[Line]) -> Result<Outcome> {
        let _: (String, String, String, String) = self.one(
            "SELECT c_discount, c_last, c_credit, w_tax FROM customer JOIN warehouse ON w_id = c_w_id \
             WHERE c_w_id = ? AND c_d_id = ? AND c_id = ?",
            (w, d, c),
        )?;
        let (order, _): (u32, String) = self.one(
            "SELECT d_next_o_id, d_tax FROM district WHERE d_w_id = ? AND d_id = ? FOR UPDATE",
            (w, d),
        )?;
        self.change(
            "UPDATE district SET d_next_o_id = ? WHERE d_w_id = ? AND d_id = ?",
            (order + 1, w, d),
        )?;
        let is_local = lines.iter().all(|line| line.supply_w == w);
        self.change(
            "INSERT INTO orders VALUES (?, ?, ?, ?, ?, NULL, ?, ?)",
            (w, d, order, c, date_time(START), lines.len(), is_local),
        )?;
        self.change("INSERT INTO new_orders VALUES (?, ?, ?)", (w, d, order))?;
        for (at, line) in (1u32..).zip(lines) {
            let item: Option<(f64, String, String)> = self
                .first("SELECT i_price, i_name, i_data FROM item WHERE i_id = ?", (line.item,))?;
            let Some((price, ..)) = item else { return Ok(Outcome::RolledBack) };
            let info = self.take_stock(line, w, d)?;
            let cents = (price * 100.0).round() as i64 * i64::from(line.quantity);
            let (item, supply_w, quantity) = (line.item, line.supply_w, line.quantity);
            self.change(
                "INSERT INTO order_line VALUES (?, ?, ?, ?, ?, ?, NULL, ?, ?, ?)",
                (w, d, order, at, item, supply_w, quantity, money(cents), info),
            )?;
        }
        Ok(Outcome::Committed)
    }

    /// Takes what a line orders; what the stock says of the district.
    fn take_stock(&mut self, line: &Line, w: u32, d: u32) -> Result<String> {
        let row: mysql::Row = self.one(
            "SELECT s_quantity, s_data, s_dist_01, s_dist_02, s_dist_03, s_dist_04, s_dist_05, s_dist_06, \
             s_dist_07, s_dist_08, s_dist_09, s_dist_10 FROM stock WHERE s_w_id = ? AND s_i_id = ? FOR UPDATE",
            (line.supply_w, line.item),
        )?;
        let quantity = i64::from(line.quantity);
        let there: i64 = row.get(0).unwrap_or_default();
        let left = match there >= quantity + LEAST_LEFT {
            true => there - quantity,
            false => there - quantity + REFILL,
        };
        let is_remote = line.supply_w != w;
        self.change(
            "UPDATE stock SET s_quantity = ?, s_ytd = s_ytd + ?, s_order_cnt = s_order_cnt + 1, \
             s_remote_cnt = s_remote_cnt + ? WHERE s_w_id = ? AND s_i_id = ?",
            (left, quantity, is_remote, line.supply_w, line.item),
        )?;
        Ok(row.get(1 + d as usize).unwrap_or_default())
    }

    /// The customer's number.
    fn find(&mut self, w: u32, d: u32, who: &Who) -> Result<u32> {
        let name = match who {
            Who::Id(id) => return Ok(*id),
            Who::LastName(name) => name,
        };
        let sql = "SELECT c_id FROM customer WHERE c_w_id = ? AND c_d_id = ? AND c_last = ? \
                   ORDER BY c_first";
        let ids: Vec<u32> =
            self.connection.exec(sql, (w, d, name)).map_err(failed("find a customer"))?;
        match ids.len() {
            0 => Err(Error::Contents { engine: NAME, message: format!("no customer {name}") }),
            count => Ok(ids[(count - 1) / 2]),
        }
    }

    fn payment(
        &mut self,
        [w, d]: [u32; 2],
        [c_w, c_d]: [u32; 2],
        who: &Who,
        cents: i64,
        history: i64,
    ) -> Result<Outcome> {
        let amount = money(cents);
        self.change("UPDATE warehouse SET w_ytd = w_ytd + ? WHERE w_id = ?", (&amount, w))?;
        let (of_warehouse,): (String,) =
            self.one("SELECT w_name FROM warehouse WHERE w_id = ?", (w,))?;
        self.change(
            "UPDATE district SET d_ytd = d_ytd + ? WHERE d_w_id = ? AND d_id = ?",
            (&amount, w, d),
        )?;
        let (of_district,): (String,) =
            self.one("SELECT d_name FROM district WHERE d_w_id = ? AND d_id = ?", (w, d))?;
        let c = self.find(c_w, c_d, who)?;
        let (credit,): (String,) = self.one(
            "SELECT c_credit FROM customer WHERE c_w_id = ? AND c_d_id = ? AND c_id = ? FOR UPDATE",
            (c_w, c_d, c),
        )?;
        self.change(
            "UPDATE customer SET c_balance = c_balance - ?, c_ytd_payment = c_ytd_payment + ?, \
             c_payment_cnt = c_payment_cnt + 1 WHERE c_w_id = ? AND c_d_id = ? AND c_id = ?",
            (&amount, &amount, c_w, c_d, c),
        )?;
        if credit == "BC" {
            let data = format!("{c} {c_d} {c_w} {d} {w} {amount} ");
            self.change(
                "UPDATE customer SET c_data = LEFT(CONCAT(?, c_data), 500) \
                 WHERE c_w_id = ? AND c_d_id = ? AND c_id = ?",
                (data, c_w, c_d, c),
            )?;
        }
        let told = format!("{of_warehouse}    {of_district}");
        self.change(
            "INSERT INTO history VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (history, c, c_d, c_w, d, w, date_time(START), amount, told),
        )?;
        Ok(Outcome::Committed)
    }

    fn order_status(&mut self, w: u32, d: u32, who: &Who) -> Result<Outcome> {
        let c = self.find(w, d, who)?;
        let _: (String, String, String, String) = self.one(
            "SELECT c_balance, c_first, c_middle, c_last FROM customer \
             WHERE c_w_id = ? AND c_d_id = ? AND c_id = ?",
            (w, d, c),
        )?;
        let (order, _, _): (u32, String, Option<u32>) = self.one(
            "SELECT o_id, CAST(o_entry_d AS CHAR), o_carrier_id FROM orders \
             WHERE o_w_id = ? AND o_d_id = ? AND o_c_id = ? ORDER BY o_id DESC LIMIT 1",
            (w, d, c),
        )?;
        let lines = "SELECT ol_i_id, ol_supply_w_id, ol_quantity, ol_amount, ol_delivery_d \
                     FROM order_line WHERE ol_w_id = ? AND ol_d_id = ? AND ol_o_id = ?";
        self.change(lines, (w, d, order))?;
        Ok(Outcome::Committed)
    }

    fn delivery(&mut self, w: u32, carrier: u32) -> Result<Outcome> {
        for d in 1..=DISTRICTS {
            self.deliver(w, d, carrier)?;
        }
        Ok(Outcome::Committed)
    }

    /// Delivers a district's oldest order, if it has one.
    fn deliver(&mut self, w: u32, d: u32, carrier: u32) -> Result<()> {
        let oldest: Option<(u32,)> = self.first(
            "SELECT no_o_id FROM new_orders WHERE no_w_id = ? AND no_d_id = ? \
             ORDER BY no_o_id LIMIT 1 FOR UPDATE",
            (w, d),
        )?;
        let Some((order,)) = oldest else { return Ok(()) };
        self.change(
            "DELETE FROM new_orders WHERE no_w_id = ? AND no_d_id = ? AND no_o_id = ?",
            (w, d, order),
        )?;
        let (c,): (u32,) = self.one(
            "SELECT o_c_id FROM orders WHERE o_w_id = ? AND o_d_id = ? AND o_id = ? FOR UPDATE",
            (w, d, order),
        )?;
        self.change(
            "UPDATE orders SET o_carrier_id = ? WHERE o_w_id = ? AND o_d_id = ? AND o_id = ?",
            (carrier, w, d, order),
        )?;
        self.change(
            "UPDATE order_line SET ol_delivery_d = ? WHERE ol_w_id = ? AND ol_d_id = ? AND ol_o_id = ?",
            (date_time(START), w, d, order),
        )?;
        let (amount,): (String,) = self.one(
            "SELECT SUM(ol_amount) FROM order_line WHERE ol_w_id = ? AND ol_d_id = ? AND ol_o_id = ?",
            (w, d, order),
        )?;
        self.change(
            "UPDATE customer SET c_balance = c_balance + ?, c_delivery_cnt = c_delivery_cnt + 1 \
             WHERE c_w_id = ? AND c_d_id = ? AND c_id = ?",
            (amount, w, d, c),
        )
    }

    fn stock_level(&mut self, w: u32, d: u32, threshold: u32) -> Result<Outcome> {
        let (next,): (u32,) =
            self.one("SELECT d_next_o_id FROM district WHERE d_w_id = ? AND d_id = ?", (w, d))?;
        let _: (u64,) = self.one(
            "SELECT COUNT(DISTINCT s_i_id) FROM order_line JOIN stock ON s_i_id = ol_i_id \
             WHERE ol_w_id = ? AND ol_d_id = ? AND ol_o_id < ? AND ol_o_id >= ? AND s_w_id = ? AND s_quantity < ?",
            (w, d, next, next.saturating_sub(20), w, threshold),
        )?;
        Ok(Outcome::Committed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tpcc::tables::{history, orders};

    #[test]
    fn definitions() {
        assert_eq!(
            create_table(&orders::TABLE, "weir"),
            "CREATE TABLE orders (o_w_id INT NOT NULL, o_d_id INT NOT NULL, o_id INT NOT NULL, \
             o_c_id INT NOT NULL, o_entry_d DATETIME NOT NULL, o_carrier_id INT, o_ol_cnt INT NOT NULL, \
             o_all_local INT NOT NULL, PRIMARY KEY (o_w_id, o_d_id, o_id), \
             KEY by_customer (o_w_id, o_d_id, o_c_id, o_id)) ENGINE=weir"
        );
        assert!(
            create_table(&history::TABLE, "innodb").contains("h_amount DECIMAL(12,2) NOT NULL")
        );
    }

    #[test]
    fn values() {
        let shown = |kind: Kind, value: OwnedValue| {
            let mut out = String::new();
            kind.literal(&value, &mut out);
            out
        };
        assert_eq!(shown(Kind::Money, OwnedValue::I64(-1005)), "-10.05");
        assert_eq!(shown(Kind::Rate, OwnedValue::I64(37)), "0.0037");
        assert_eq!(shown(Kind::Time, OwnedValue::I64(START)), "'2026-01-01 00:00:00'");
        assert_eq!(shown(Kind::Text(5), OwnedValue::Text("abc".into())), "'abc'");
        assert_eq!(shown(Kind::NumberOrNull, OwnedValue::Null), "NULL");
    }
}
