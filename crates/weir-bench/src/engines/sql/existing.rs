//! Tables that somebody made for the benchmark: with partitions, in a sharding engine, as they
//! like.
//!
//! They must be empty and have the columns of [`super::statements::create_table`]; for steps that
//! read by the secondary indexes, and for `load`, also these. They stay when the run is over.

use std::collections::BTreeSet;

use mysql::Conn;
use mysql::prelude::Queryable;

use super::statements::{create_table, quoted, table_name};
use super::target::failed;
use crate::error::{Error, Result};
use crate::row::Secondary;

/// Checks that each client has an empty table; returns the storage engine of the first one.
///
/// # Errors
/// Which table is missing or not empty, and how it is to be made; the server's.
pub fn require_tables(control: &mut Conn, database: &str, clients: u32) -> Result<String> {
    let find =
        "SELECT ENGINE FROM information_schema.TABLES WHERE TABLE_SCHEMA = ? AND TABLE_NAME = ?";
    let mut engine = None;
    for table in 0..clients {
        let name = table_name(table);
        let found: Option<String> =
            control.exec_first(find, (database, &name)).map_err(failed("find tables"))?;
        let Some(found) = found else {
            let create = create_table(table, true, "...");
            let what = format!("the server has no table {database}.{name}; it is made by {create}");
            return Err(Error::Usage(what));
        };
        let row: Option<u64> = control
            .query_first(format!("SELECT 1 FROM {} LIMIT 1", quoted(&name)))
            .map_err(failed("look whether a table is empty"))?;
        if row.is_some() {
            let what =
                format!("the table {database}.{name} is not empty: empty it by TRUNCATE TABLE");
            return Err(Error::Usage(what));
        }
        engine.get_or_insert(found);
    }
    engine.ok_or_else(|| Error::Usage("no clients, no tables".into()))
}

/// Checks that a table has the secondary indexes.
///
/// # Errors
/// Which it lacks; the server's.
pub fn require_indexes(control: &mut Conn, database: &str, table: u32) -> Result<()> {
    let find = "SELECT DISTINCT INDEX_NAME FROM information_schema.STATISTICS \
                WHERE TABLE_SCHEMA = ? AND TABLE_NAME = ?";
    let name = table_name(table);
    let found: Vec<String> =
        control.exec(find, (database, &name)).map_err(failed("find indexes"))?;
    let found: BTreeSet<String> = found.into_iter().collect();
    match Secondary::ALL.iter().find(|index| !found.contains(index.name())) {
        None => Ok(()),
        Some(index) => Err(Error::Usage(format!(
            "the table {database}.{name} has no index {} ({}), which the step needs",
            index.name(),
            index.columns().join(", ")
        ))),
    }
}
