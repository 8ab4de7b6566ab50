//! One client's connection, and the statements on its table.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::atomic::AtomicBool;

use mysql::prelude::{FromRow, Queryable};
use mysql::{Conn, Statement, Value};

use super::statements::{self, with_numbers};
use super::target::{NAME, Target, failed};
use crate::engine::{Index, IndexEntry, Scanned, Session};
use crate::error::{Error, Result};
use crate::row::{Data, IndexKey, Row, Secondary};
use crate::stopping::ended_by;

/// Rows of one INSERT, so that a packet stays below what servers take by default and a prepared
/// statement has at most 65,535 values.
const ROWS_MAX: usize = 5_000;

/// A statement whose values are numbers, prepared or not.
struct Asked {
    sql: String,
    statement: Option<Statement>,
}

impl Asked {
    fn new(connection: &mut Conn, prepared: bool, sql: String) -> Result<Self> {
        let statement = match prepared {
            true => Some(connection.prep(&sql).map_err(failed("prepare"))?),
            false => None,
        };
        Ok(Asked { sql, statement })
    }

    fn rows<T: FromRow>(&self, connection: &mut Conn, numbers: &[u64]) -> mysql::Result<Vec<T>> {
        match &self.statement {
            Some(statement) => connection.exec(statement, values(numbers)),
            None => connection.query(with_numbers(&self.sql, numbers)),
        }
    }

    /// Runs it and says how many rows it changed.
    fn change(&self, connection: &mut Conn, numbers: &[u64]) -> mysql::Result<u64> {
        match &self.statement {
            Some(statement) => connection.exec_drop(statement, values(numbers))?,
            None => connection.query_drop(with_numbers(&self.sql, numbers))?,
        }
        Ok(connection.affected_rows())
    }
}

fn values(numbers: &[u64]) -> Vec<Value> {
    numbers.iter().map(|&number| Value::UInt(number)).collect()
}

/// One client's connection.
pub(super) struct SqlSession<'a> {
    target: &'a Target,
    connection: Conn,
    table: u32,
    prepared: bool,
    /// Whether plans are to use the index that is measured; those of a sharding engine don't tell.
    pub(super) checks_plans: bool,
    get: Asked,
    update: Asked,
    delete: Asked,
    /// By index and number of entries.
    ranges: HashMap<(Secondary, usize), Asked>,
    /// By number of rows.
    inserts: HashMap<usize, Statement>,
    /// An INSERT as text, kept for its memory.
    text: String,
}

impl<'a> SqlSession<'a> {
    pub(super) fn new(
        target: &'a Target,
        mut connection: Conn,
        table: u32,
        prepared: bool,
    ) -> Result<Self> {
        let mut asked = |sql| Asked::new(&mut connection, prepared, sql);
        let get = asked(statements::get(table))?;
        let update = asked(statements::update(table))?;
        let delete = asked(statements::delete(table))?;
        Ok(SqlSession {
            target,
            connection,
            table,
            prepared,
            checks_plans: true,
            get,
            update,
            delete,
            ranges: HashMap::new(),
            inserts: HashMap::new(),
            text: String::new(),
        })
    }

    /// Runs a long statement, which the server is told to end once `stop` is set.
    fn until<T>(&mut self, stop: &AtomicBool, statement: impl FnOnce(&mut Conn) -> T) -> T {
        let kill = format!("KILL QUERY {}", self.connection.connection_id());
        let target = &self.target;
        let end = || {
            // It is tried again.
            let _ = target.connect(None).map(|mut other| other.query_drop(&kill));
        };
        ended_by(stop, end, || statement(&mut self.connection))
    }

    fn run(&mut self, sql: &'static str) -> Result<()> {
        self.connection.query_drop(sql).map_err(failed(sql))
    }

    fn insert(&mut self, rows: &[Row]) -> Result<()> {
        if self.prepared {
            self.insert_prepared(rows)?;
        } else {
            statements::insert_text(self.table, rows, &mut self.text);
            self.connection.query_drop(&self.text).map_err(failed("insert"))?;
        }
        let inserted = self.connection.affected_rows();
        if inserted != rows.len() as u64 {
            let message = format!("{inserted} of {} rows were inserted", rows.len());
            return Err(Error::engine(NAME, "insert", message));
        }
        Ok(())
    }

    fn insert_prepared(&mut self, rows: &[Row]) -> Result<()> {
        if !self.inserts.contains_key(&rows.len()) {
            let sql = statements::insert(self.table, rows.len());
            let statement = self.connection.prep(sql).map_err(failed("prepare"))?;
            self.inserts.insert(rows.len(), statement);
        }
        let mut values = Vec::with_capacity(rows.len() * 7);
        for row in rows {
            values.extend([
                Value::UInt(row.transactionid),
                Value::UInt(row.dateandtime),
                Value::UInt(row.cashregisterid.into()),
                Value::UInt(row.customerid.into()),
                Value::UInt(row.productid.into()),
                Value::UInt(row.price.into()),
                Value::Bytes(row.data.as_bytes().to_vec()),
            ]);
        }
        let statement = &self.inserts[&rows.len()];
        self.connection.exec_drop(statement, values).map_err(failed("insert"))
    }

    fn change(&mut self, rows: &[Row], delete: Range<u64>) -> Result<()> {
        for part in rows.chunks(ROWS_MAX) {
            self.insert(part)?;
        }
        if delete.is_empty() {
            return Ok(());
        }
        let numbers = [delete.start, delete.end];
        let deleted =
            self.delete.change(&mut self.connection, &numbers).map_err(failed("delete"))?;
        if deleted != delete.end - delete.start {
            let message = format!("{deleted} of the rows {delete:?} were there");
            return Err(Error::engine(NAME, "delete", message));
        }
        Ok(())
    }

    /// Makes sure that the server is going to read the index that is to be measured.
    fn check_plan(&mut self, scan: &str, index: Index) -> Result<()> {
        let explain = format!("EXPLAIN {scan}");
        let plan: Option<mysql::Row> =
            self.connection.query_first(explain).map_err(failed("explain"))?;
        let key: Option<String> =
            plan.and_then(|row| row.get::<Option<String>, _>("key")).flatten();
        let wanted = statements::index_name(index);
        // The rows are in the primary key: a scan of the table is one of it.
        if key.as_deref().unwrap_or("PRIMARY") != wanted {
            let message = format!("the server reads {key:?} instead of {wanted}");
            return Err(Error::engine(NAME, "scan", message));
        }
        Ok(())
    }
}

impl Session for SqlSession<'_> {
    fn create_indexes(&mut self, stop: &AtomicBool) -> Result<()> {
        let sql = statements::create_indexes(self.table);
        let created = self.until(stop, |connection| connection.query_drop(sql));
        created.map_err(failed("create indexes"))
    }

    fn write(&mut self, rows: &[Row], delete: Range<u64>) -> Result<()> {
        // One statement is a transaction of its own.
        if delete.is_empty() && rows.len() <= ROWS_MAX {
            return self.insert(rows);
        }
        self.run("BEGIN")?;
        match self.change(rows, delete) {
            Ok(()) => self.run("COMMIT"),
            Err(error) => {
                // The first error says more than one of the rollback would.
                let _ = self.run("ROLLBACK");
                Err(error)
            }
        }
    }

    fn scan(&mut self, index: Index, stop: &AtomicBool) -> Result<Scanned> {
        let sql = statements::scan(self.table, index);
        if self.checks_plans {
            self.check_plan(&sql, index)?;
        }
        let row = self.until(stop, |connection| connection.query_first(&sql));
        let row: Option<mysql::Row> = row.map_err(failed("scan"))?;
        let numbers = row.and_then(|row| {
            let text_bytes = row.get::<Option<u64>, _>(2).flatten().unwrap_or(0);
            Some(Scanned { rows: row.get(0)?, id_xor: row.get(1)?, text_bytes })
        });
        numbers.ok_or_else(|| Error::engine(NAME, "scan", "it gave no numbers"))
    }

    fn range(
        &mut self,
        index: Secondary,
        start: &IndexKey,
        limit: usize,
        out: &mut Vec<IndexEntry>,
    ) -> Result<()> {
        if !self.ranges.contains_key(&(index, limit)) {
            let sql = statements::range(self.table, index, limit);
            let asked = Asked::new(&mut self.connection, self.prepared, sql)?;
            self.ranges.insert((index, limit), asked);
        }
        let asked = &self.ranges[&(index, limit)];
        let numbers = statements::range_values(*start);
        let rows: Vec<(u64, u64, u64, u64)> =
            asked.rows(&mut self.connection, &numbers).map_err(failed("range"))?;
        out.extend(rows.into_iter().map(|(a, b, c, id)| IndexEntry { key: [a, b, c], id }));
        Ok(())
    }

    fn update(&mut self, id: u64, register: u32) -> Result<()> {
        let numbers = [register.into(), id];
        let changed =
            self.update.change(&mut self.connection, &numbers).map_err(failed("update"))?;
        match changed {
            1 => Ok(()),
            _ => Err(Error::engine(NAME, "update", format!("{changed} rows have the id {id}"))),
        }
    }

    fn get(&mut self, id: u64) -> Result<Option<Row>> {
        type Columns = (u64, u64, u32, u32, u32, u32, String);
        let rows: Vec<Columns> =
            self.get.rows(&mut self.connection, &[id]).map_err(failed("get"))?;
        let row = rows.into_iter().next();
        Ok(row.map(
            |(transactionid, dateandtime, cashregisterid, customerid, productid, price, data)| {
                Row {
                    transactionid,
                    dateandtime,
                    cashregisterid,
                    customerid,
                    productid,
                    price,
                    data: Data::new(data.as_bytes()),
                }
            },
        ))
    }
}
