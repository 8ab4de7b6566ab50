//! The SQL of the benchmark.
//!
//! Tables are `iibench`'s, with the columns' types as narrow as its own. Reads name the index to
//! use, as the field's benchmark does, so that engines are compared rather than their statistics.
//!
//! The place that a range query begins at is a key of three columns. It is asked for as `iibench`
//! asks: three ranges, joined by OR, of which the server's optimiser makes one pass over the index.
//! A comparison of rows, `(a, b, c) >= (?, ?, ?)`, would be shorter, but isn't used for ranges by
//! MariaDB.

use std::fmt::Write;

use crate::engine::Index;
use crate::row::{Row, Secondary};

/// Name of a client's table.
pub fn table_name(table: u32) -> String {
    format!("purchases{}", table + 1)
}

/// A name between backquotes.
pub fn quoted(name: &str) -> String {
    format!("`{}`", name.replace('`', "``"))
}

/// Makes a table in a storage engine.
pub fn create_table(table: u32, indexed: bool, table_engine: &str) -> String {
    let mut sql = format!(
        "CREATE TABLE {} (transactionid BIGINT UNSIGNED NOT NULL PRIMARY KEY, \
         dateandtime INT UNSIGNED NOT NULL, cashregisterid INT UNSIGNED NOT NULL, \
         customerid INT UNSIGNED NOT NULL, productid INT UNSIGNED NOT NULL, \
         price INT UNSIGNED NOT NULL, data VARCHAR(4000) CHARACTER SET latin1 NOT NULL",
        table_name(table)
    );
    if indexed {
        for index in Secondary::ALL {
            let _ = write!(sql, ", KEY {} ({})", index.name(), index.columns().join(", "));
        }
    }
    let _ = write!(sql, ") ENGINE={table_engine}");
    sql
}

/// Adds the secondary indexes.
pub fn create_indexes(table: u32) -> String {
    let index =
        |index: Secondary| format!("ADD KEY {} ({})", index.name(), index.columns().join(", "));
    format!("ALTER TABLE {} {}", table_name(table), Secondary::ALL.map(index).join(", "))
}

/// The name of an index for hints and in plans.
pub fn index_name(index: Index) -> &'static str {
    match index {
        Index::Primary => "PRIMARY",
        Index::Secondary(index) => index.name(),
    }
}

/// Reads a whole index in the server: rows, and their ids combined.
pub fn scan(table: u32, index: Index) -> String {
    // A column that no other index has, so that whole rows are read.
    let more = if index == Index::Primary { ", SUM(LENGTH(data))" } else { "" };
    let (table, index) = (table_name(table), index_name(index));
    format!("SELECT COUNT(*), BIT_XOR(transactionid){more} FROM {table} FORCE INDEX ({index})")
}

/// Reads a number of entries of an index, from a key on. [`range_values`] has the values.
pub fn range(table: u32, index: Secondary, limit: usize) -> String {
    let [a, b, c] = index.columns();
    let (table, name) = (table_name(table), index.name());
    format!(
        "SELECT {a}, {b}, {c}, transactionid FROM {table} FORCE INDEX ({name}) \
         WHERE ({a} = ? AND {b} = ? AND {c} >= ?) OR ({a} = ? AND {b} > ?) OR ({a} > ?) \
         ORDER BY {a}, {b}, {c} LIMIT {limit}"
    )
}

/// The values for [`range`].
pub fn range_values([a, b, c]: [u64; 3]) -> [u64; 6] {
    [a, b, c, a, b, a]
}

/// Reads a row.
pub fn get(table: u32) -> String {
    format!("SELECT * FROM {} WHERE transactionid = ?", table_name(table))
}

/// Changes an indexed column of a row.
pub fn update(table: u32) -> String {
    format!("UPDATE {} SET cashregisterid = ? WHERE transactionid = ?", table_name(table))
}

/// Deletes the rows from one id to before another.
pub fn delete(table: u32) -> String {
    let table = table_name(table);
    format!("DELETE FROM {table} WHERE transactionid >= ? AND transactionid < ?")
}

/// Inserts a number of rows, with places for the values of each.
pub fn insert(table: u32, rows: usize) -> String {
    let mut sql = format!("INSERT INTO {} VALUES ", table_name(table));
    for row in 0..rows {
        sql += if row == 0 { "(?,?,?,?,?,?,?)" } else { ",(?,?,?,?,?,?,?)" };
    }
    sql
}

/// Inserts rows, as text, into `sql`, which is overwritten.
pub fn insert_text(table: u32, rows: &[Row], sql: &mut String) {
    sql.clear();
    let _ = write!(sql, "INSERT INTO {} VALUES ", table_name(table));
    // The server waits meanwhile: `fmt` would take a fifth more of the client's time.
    let mut digits = itoa::Buffer::new();
    for (at, row) in rows.iter().enumerate() {
        sql.push_str(if at == 0 { "(" } else { ",(" });
        let numbers = [
            row.transactionid,
            row.dateandtime,
            row.cashregisterid.into(),
            row.customerid.into(),
            row.productid.into(),
            row.price.into(),
        ];
        for number in numbers {
            sql.push_str(digits.format(number));
            sql.push(',');
        }
        // The generator's texts have no character that would have to be escaped.
        sql.push('\'');
        sql.push_str(row.data.as_str());
        sql.push_str("')");
    }
}

/// A statement with numbers in its places.
///
/// # Panics
/// When there are other than as many places as numbers.
pub fn with_numbers(sql: &str, numbers: &[u64]) -> String {
    assert_eq!(sql.matches('?').count(), numbers.len(), "a number for each place of {sql}");
    let mut parts = sql.split('?');
    let mut text = parts.next().unwrap_or_default().to_string();
    for (number, part) in numbers.iter().zip(parts) {
        let _ = write!(text, "{number}{part}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row::Generator;

    #[test]
    fn text_has_the_rows_that_placeholders_would_have() {
        let rows = [Generator::new(1).row(0, 1), Generator::new(1).row(0, 2)];
        let mut sql = String::from("left over");
        insert_text(0, &rows, &mut sql);
        assert_eq!(
            sql,
            "INSERT INTO purchases1 VALUES (1,1500000000,749,39589,656,357,'l_QV9aiaaaaaaaa'),\
             (2,1500000000,510,95582,7265,221,'Ucqn4uIMmaaaaaaaaaa')"
        );
        assert_eq!(insert(0, 2), "INSERT INTO purchases1 VALUES (?,?,?,?,?,?,?),(?,?,?,?,?,?,?)");
    }

    #[test]
    fn numbers_go_into_their_places_in_order() {
        assert_eq!(with_numbers("a ? b ?", &[7, 8]), "a 7 b 8");
        let range = with_numbers(&range(1, Secondary::Price, 10), &range_values([1, 2, 3]));
        let place = "WHERE (price = 1 AND dateandtime = 2 AND customerid >= 3) OR \
                     (price = 1 AND dateandtime > 2) OR (price > 1) ORDER BY";
        assert!(range.contains(place), "{range}");
    }

    #[test]
    fn names_of_databases_are_quoted() {
        assert_eq!(quoted("a`b"), "`a``b`");
    }
}
