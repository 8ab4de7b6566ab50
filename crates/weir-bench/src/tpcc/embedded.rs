//! TPC-C on the embedded engine, by its public API.
//!
//! Rows that are going to be changed are read under lock, others as the transaction's snapshot has
//! them.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use weir::{
    Bounds, Cursor, Database, Direction, IndexRef, Isolation, Lock, RowRef, Schema, Table, Type,
    Value, Wait,
};

use super::population::Row;
use super::random::DISTRICTS;
use super::store::{Books, District, LEAST_LEFT, Loader, Outcome, REFILL, START, Store, Terminal};
use super::tables::{
    Kind, TABLES, TableDefinition, customer, district, history, item, new_orders, order_line,
    orders, stock, warehouse,
};
use super::transactions::{Line, Transaction, Who};
use crate::engines::weir::NAME;
use crate::error::{Error, Result};

const FORWARD: Direction = Direction::Forward;
/// A customer's data are not longer than this.
const DATA_MAX: usize = 500;
fn failed(operation: &'static str) -> impl Fn(weir::Error) -> Error {
    move |error| match error {
        weir::Error::Deadlock | weir::Error::LockWaitTimeout => {
            Error::Conflict { engine: NAME, message: error.to_string() }
        }
        _ => Error::engine(NAME, operation, error),
    }
}

fn missing(what: &str) -> Error {
    Error::Contents { engine: NAME, message: format!("there is no such {what}") }
}

fn keys(numbers: impl IntoIterator<Item = u32>) -> Vec<Value<'static>> {
    numbers.into_iter().map(|number| Value::I64(number.into())).collect()
}

fn number(value: Value<'_>) -> i64 {
    value.as_i64().expect("the column holds numbers")
}

fn column(row: &RowRef<'_>, place: usize) -> Result<i64> {
    Ok(number(row.get(place).map_err(|error| Error::engine(NAME, "read column", error))?))
}

fn schema(table: &TableDefinition) -> Result<Schema> {
    let mut schema = Schema::builder();
    for (name, kind) in table.columns {
        let column_type = if matches!(kind, Kind::Text(_)) { Type::Text } else { Type::I64 };
        schema = match kind.is_nullable() {
            true => schema.nullable_column(name, column_type),
            false => schema.column(name, column_type),
        };
    }
    schema = schema.primary_key(table.primary_key);
    if let Some((name, columns)) = table.index {
        schema = schema.index(name, columns);
    }
    schema.build().map_err(|error| Error::engine(NAME, "schema", error))
}

impl Store for Database {
    fn create(&self) -> Result<()> {
        for table in &TABLES {
            self.create_table(table.name, schema(table)?).map_err(failed("create table"))?;
        }
        Ok(())
    }

    fn loader(&self) -> Result<Box<dyn Loader + '_>> {
        Ok(Box::new(self))
    }

    fn terminal(&self) -> Result<Box<dyn Terminal + '_>> {
        Ok(Box::new(WeirTerminal { database: self, tables: Tables::open(self)? }))
    }

    fn books(&self) -> Result<Books> {
        let tables = Tables::open(self)?;
        let mut books = Books::default();
        each(self, &tables.warehouse, |row| {
            let of = books.warehouses.entry(column(row, warehouse::w_id)?);
            *of.or_default() = column(row, warehouse::w_ytd)?;
            Ok(())
        })?;
        let districts = &mut books.districts;
        each(self, &tables.district, |row| {
            let of = of_district(districts, row)?;
            of.ytd = column(row, district::d_ytd)?;
            of.next_order = column(row, district::d_next_o_id)?;
            Ok(())
        })?;
        each(self, &tables.orders, |row| {
            let of = of_district(districts, row)?;
            of.orders_last = of.orders_last.max(column(row, orders::o_id)?);
            of.lines_of_orders += column(row, orders::o_ol_cnt)?;
            Ok(())
        })?;
        each(self, &tables.order_line, |row| {
            of_district(districts, row)?.lines += 1;
            Ok(())
        })?;
        each(self, &tables.new_orders, |row| {
            let (of, id) = (of_district(districts, row)?, column(row, new_orders::no_o_id)?);
            if of.new_orders == 0 {
                of.new_orders_first = id;
            }
            of.new_orders += 1;
            of.new_orders_last = id;
            Ok(())
        })?;
        Ok(books)
    }
}

/// The district that a row belongs to: its table's key begins with warehouse and district.
fn of_district<'a>(
    districts: &'a mut BTreeMap<(i64, i64), District>,
    row: &RowRef<'_>,
) -> Result<&'a mut District> {
    Ok(districts.entry((column(row, 0)?, column(row, 1)?)).or_default())
}

/// Looks at all rows of a table, in the order of their keys.
fn each(
    database: &Database,
    table: &Table,
    mut look: impl FnMut(&RowRef<'_>) -> Result<()>,
) -> Result<()> {
    let mut txn = database.begin(Isolation::RepeatableRead).map_err(failed("begin"))?;
    let rows = txn.scan(table, IndexRef::Primary, Bounds::all(), FORWARD);
    let mut rows = rows.map_err(failed("scan"))?;
    while let Some(row) = rows.next().map_err(failed("scan"))? {
        look(&row)?;
    }
    Ok(())
}

fn open_table(database: &Database, definition: &TableDefinition) -> Result<Table> {
    let name = definition.name;
    database
        .table(name)
        .ok_or_else(|| Error::engine(NAME, "open table", format!("no table {name}")))
}

impl Loader for &Database {
    fn insert(&mut self, table: &TableDefinition, rows: &[Row]) -> Result<()> {
        let table = open_table(self, table)?;
        let rows: Vec<Vec<Value<'_>>> =
            rows.iter().map(|row| row.iter().map(Value::from).collect()).collect();
        let mut txn = self.begin(Isolation::RepeatableRead).map_err(failed("begin"))?;
        txn.insert_many(&table, &rows).map_err(failed("insert"))?;
        txn.commit().map_err(failed("commit"))
    }
}

struct Tables {
    warehouse: Table,
    district: Table,
    customer: Table,
    history: Table,
    new_orders: Table,
    orders: Table,
    order_line: Table,
    item: Table,
    stock: Table,
}

impl Tables {
    fn open(database: &Database) -> Result<Tables> {
        let open = |table: &TableDefinition| open_table(database, table);
        Ok(Tables {
            warehouse: open(&warehouse::TABLE)?,
            district: open(&district::TABLE)?,
            customer: open(&customer::TABLE)?,
            history: open(&history::TABLE)?,
            new_orders: open(&new_orders::TABLE)?,
            orders: open(&orders::TABLE)?,
            order_line: open(&order_line::TABLE)?,
            item: open(&item::TABLE)?,
            stock: open(&stock::TABLE)?,
        })
    }
}

struct WeirTerminal<'a> {
    database: &'a Database,
    tables: Tables,
}

impl Terminal for WeirTerminal<'_> {
    fn run(&mut self, transaction: &Transaction, history: i64) -> Result<Outcome> {
        let txn = self.database.begin(Isolation::RepeatableRead).map_err(failed("begin"))?;
        let mut work = Work { txn, tables: &self.tables };
        let outcome = match transaction {
            Transaction::NewOrder { w, d, c, lines } => work.new_order(*w, *d, *c, lines)?,
            Transaction::Payment { w, d, c_w, c_d, who, amount } => {
                work.payment([*w, *d], [*c_w, *c_d], who, (*amount).into(), history)?
            }
            Transaction::OrderStatus { w, d, who } => work.order_status(*w, *d, who)?,
            Transaction::Delivery { w, carrier } => work.delivery(*w, *carrier)?,
            Transaction::StockLevel { w, d, threshold } => {
                work.stock_level(*w, *d, (*threshold).into())?
            }
        };
        match outcome {
            Outcome::Committed => work.txn.commit().map_err(failed("commit"))?,
            Outcome::RolledBack => work.txn.rollback().map_err(failed("rollback"))?,
        }
        Ok(outcome)
    }
}

/// One transaction at work.
struct Work<'a> {
    txn: weir::Transaction,
    tables: &'a Tables,
}

impl Work<'_> {
    fn get(&mut self, table: &Table, key: &[Value<'_>], what: &str) -> Result<weir::Row> {
        self.txn.get(table, key).map_err(failed("get"))?.ok_or_else(|| missing(what))
    }

    /// Changes a row under lock: `change` is given its values.
    fn change<T>(
        &mut self,
        table: &Table,
        key: &[Value<'_>],
        what: &str,
        change: impl FnOnce(&mut [Value<'_>]) -> T,
    ) -> Result<T> {
        let row = self.txn.get_for_update(table, key).map_err(failed("get for update"))?;
        let row = row.ok_or_else(|| missing(what))?;
        let mut values: Vec<Value<'_>> = row.values().collect();
        let result = change(&mut values);
        self.txn.update(table, &values).map_err(failed("update"))?;
        Ok(result)
    }

    fn insert(&mut self, table: &Table, row: &[Value<'_>]) -> Result<()> {
        self.txn.insert(table, row).map_err(failed("insert"))
    }

    fn scan(
        &mut self,
        table: &Table,
        index: IndexRef<'_>,
        prefix: &[Value<'_>],
        direction: Direction,
    ) -> Result<Cursor<'_>> {
        let bounds = Bounds::prefix(prefix);
        self.txn.scan(table, index, bounds, direction).map_err(failed("scan"))
    }

    fn new_order(&mut self, w: u32, d: u32, c: u32, lines: &[Line]) -> Result<Outcome> {
        let tables = self.tables;
        self.get(&tables.warehouse, &keys([w]), "warehouse")?;
        self.get(&tables.customer, &keys([w, d, c]), "customer")?;
        let order = self.change(&tables.district, &keys([w, d]), "district", |row| {
            let order = number(row[district::d_next_o_id]);
            row[district::d_next_o_id] = Value::I64(order + 1);
            order
        })?;
        let is_local = lines.iter().all(|line| line.supply_w == w);
        let mut row = keys([w, d, 0, c]);
        row[orders::o_id] = Value::I64(order);
        let count = lines.len() as i64;
        row.extend([
            Value::I64(START),
            Value::Null,
            Value::I64(count),
            Value::I64(is_local.into()),
        ]);
        self.insert(&tables.orders, &row)?;
        self.insert(&tables.new_orders, &row[..=new_orders::no_o_id])?;
        for (at, line) in (1..).zip(lines) {
            let Some(item) =
                self.txn.get(&tables.item, &keys([line.item])).map_err(failed("get"))?
            else {
                return Ok(Outcome::RolledBack);
            };
            let info = self.take_stock(line, w, d)?;
            let amount = number(item.get(item::i_price)) * i64::from(line.quantity);
            let mut row = keys([w, d, 0, at, line.item, line.supply_w]);
            row[order_line::ol_o_id] = Value::I64(order);
            row.extend([Value::Null, Value::I64(line.quantity.into()), Value::I64(amount)]);
            row.push(Value::Text(&info));
            self.insert(&tables.order_line, &row)?;
        }
        Ok(Outcome::Committed)
    }

    /// Takes what a line orders; what the stock says of the district.
    fn take_stock(&mut self, line: &Line, w: u32, d: u32) -> Result<String> {
        let (stock, key) = (&self.tables.stock, keys([line.supply_w, line.item]));
        self.change(stock, &key, "stock", |row| {
            let add = |row: &mut [Value<'_>], place: usize, amount: i64| {
                row[place] = Value::I64(number(row[place]) + amount);
            };
            let quantity = i64::from(line.quantity);
            let enough = number(row[stock::s_quantity]) >= quantity + LEAST_LEFT;
            add(row, stock::s_quantity, if enough { -quantity } else { REFILL - quantity });
            add(row, stock::s_ytd, quantity);
            add(row, stock::s_order_cnt, 1);
            add(row, stock::s_remote_cnt, (line.supply_w != w).into());
            let info = row[stock::s_dist_01 + d as usize - 1];
            info.as_str().expect("the column holds texts").to_string()
        })
    }

    /// The customer's number.
    fn find(&mut self, w: u32, d: u32, who: &Who) -> Result<u32> {
        let name = match who {
            Who::Id(id) => return Ok(*id),
            Who::LastName(name) => name,
        };
        let mut prefix = keys([w, d]);
        prefix.push(Value::Text(name));
        let (table, index) = (&self.tables.customer, IndexRef::Named("by_name"));
        let entries = self.txn.scan_keys(table, index, Bounds::prefix(&prefix), FORWARD);
        let mut entries = entries.map_err(failed("scan"))?;
        let mut ids = Vec::new();
        while let Some(entry) = entries.next().map_err(failed("scan"))? {
            ids.push(column(&entry, customer::c_id)? as u32);
        }
        match ids.len() {
            0 => Err(missing("customer")),
            count => Ok(ids[(count - 1) / 2]),
        }
    }

    fn payment(
        &mut self,
        [w, d]: [u32; 2],
        [c_w, c_d]: [u32; 2],
        who: &Who,
        amount: i64,
        history: i64,
    ) -> Result<Outcome> {
        let tables = self.tables;
        let take = |row: &mut [Value<'_>], ytd: usize, name: usize| {
            row[ytd] = Value::I64(number(row[ytd]) + amount);
            row[name].as_str().expect("the column holds texts").to_string()
        };
        let of_warehouse = self.change(&tables.warehouse, &keys([w]), "warehouse", |row| {
            take(row, warehouse::w_ytd, warehouse::w_name)
        })?;
        let of_district = self.change(&tables.district, &keys([w, d]), "district", |row| {
            take(row, district::d_ytd, district::d_name)
        })?;
        let c = self.find(c_w, c_d, who)?;
        self.pay(&keys([c_w, c_d, c]), amount, format!("{c} {c_d} {c_w} {d} {w} {amount} "))?;
        let mut row = vec![Value::I64(history)];
        row.extend(keys([c, c_d, c_w, d, w]));
        let told = format!("{of_warehouse}    {of_district}");
        row.extend([Value::I64(START), Value::I64(amount), Value::Text(&told)]);
        self.insert(&tables.history, &row)?;
        Ok(Outcome::Committed)
    }

    /// A customer pays. `data`: what is put in front of what is known of those with bad credit.
    fn pay(&mut self, key: &[Value<'_>], amount: i64, mut data: String) -> Result<()> {
        use customer::{c_balance, c_credit, c_data, c_payment_cnt, c_ytd_payment};
        let table = &self.tables.customer;
        let row = self.txn.get_for_update(table, key).map_err(failed("get for update"))?;
        let row = row.ok_or_else(|| missing("customer"))?;
        let mut values: Vec<Value<'_>> = row.values().collect();
        for (place, by) in [(c_balance, -amount), (c_ytd_payment, amount), (c_payment_cnt, 1)] {
            values[place] = Value::I64(number(values[place]) + by);
        }
        if values[c_credit].as_str() == Some("BC") {
            data += values[c_data].as_str().unwrap_or_default();
            data.truncate(DATA_MAX);
            values[c_data] = Value::Text(&data);
        }
        self.txn.update(table, &values).map_err(failed("update"))?;
        Ok(())
    }

    fn order_status(&mut self, w: u32, d: u32, who: &Who) -> Result<Outcome> {
        let tables = self.tables;
        let c = self.find(w, d, who)?;
        self.get(&tables.customer, &keys([w, d, c]), "customer")?;
        let index = IndexRef::Named("by_customer");
        let last = self
            .scan(&tables.orders, index, &keys([w, d, c]), Direction::Backward)?
            .next()
            .map_err(failed("scan"))?
            .map(|row| column(&row, orders::o_id))
            .transpose()?;
        let order = last.ok_or_else(|| missing("order"))?;
        let mut prefix = keys([w, d]);
        prefix.push(Value::I64(order));
        let mut lines = self.scan(&tables.order_line, IndexRef::Primary, &prefix, FORWARD)?;
        while let Some(line) = lines.next().map_err(failed("scan"))? {
            column(&line, order_line::ol_amount)?;
        }
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
        let tables = self.tables;
        let (prefix, lock) = (keys([w, d]), Lock::Exclusive(Wait::ForTimeout));
        let oldest = self
            .txn
            .scan_locking(
                &tables.new_orders,
                IndexRef::Primary,
                Bounds::prefix(&prefix),
                FORWARD,
                lock,
            )
            .map_err(failed("scan"))?
            .next()
            .map_err(failed("scan"))?
            .map(|row| column(&row, new_orders::no_o_id))
            .transpose()?;
        let Some(order) = oldest else { return Ok(()) };
        let key = [prefix[0], prefix[1], Value::I64(order)];
        self.txn.delete(&tables.new_orders, &key).map_err(failed("delete"))?;
        let c = self.change(&tables.orders, &key, "order", |row| {
            row[orders::o_carrier_id] = Value::I64(carrier.into());
            number(row[orders::o_c_id])
        })?;
        let mut lines = Vec::new();
        let mut rows = self.scan(&tables.order_line, IndexRef::Primary, &key, FORWARD)?;
        while let Some(row) = rows.next().map_err(failed("scan"))? {
            lines.push(column(&row, order_line::ol_number)?);
        }
        let mut amount = 0;
        for line in lines {
            let key = [key[0], key[1], key[2], Value::I64(line)];
            amount += self.change(&tables.order_line, &key, "order line", |row| {
                row[order_line::ol_delivery_d] = Value::I64(START);
                number(row[order_line::ol_amount])
            })?;
        }
        let key = [prefix[0], prefix[1], Value::I64(c)];
        self.change(&tables.customer, &key, "customer", |row| {
            for (place, by) in [(customer::c_balance, amount), (customer::c_delivery_cnt, 1)] {
                row[place] = Value::I64(number(row[place]) + by);
            }
        })
    }

    fn stock_level(&mut self, w: u32, d: u32, threshold: i64) -> Result<Outcome> {
        let tables = self.tables;
        let district = self.get(&tables.district, &keys([w, d]), "district")?;
        let next = number(district.get(district::d_next_o_id));
        let low = [keys([w, d]), vec![Value::I64(next - 20)]].concat();
        let high = [keys([w, d]), vec![Value::I64(next)]].concat();
        let bounds = Bounds::new(Bound::Included(&low), Bound::Excluded(&high));
        let lines = self.txn.scan(&tables.order_line, IndexRef::Primary, bounds, FORWARD);
        let mut lines = lines.map_err(failed("scan"))?;
        let mut items = BTreeSet::new();
        while let Some(line) = lines.next().map_err(failed("scan"))? {
            items.insert(column(&line, order_line::ol_i_id)? as u32);
        }
        let mut few = 0u32;
        for item in items {
            let stock = self.get(&tables.stock, &keys([w, item]), "stock")?;
            few += u32::from(number(stock.get(stock::s_quantity)) < threshold);
        }
        std::hint::black_box(few);
        Ok(Outcome::Committed)
    }
}
