//! A row that borrows nothing: its texts in one buffer, its bytes in another.

use crate::value::{OwnedValue, Value};
use std::fmt;
use std::ops::Range;

/// A row that borrows nothing: every column's value, in the table's order.
#[derive(Clone)]
pub struct Row {
    cells: Box<[Cell]>,
    text: String,
    bytes: Vec<u8>,
}

/// A value, or where it lies.
#[derive(Clone)]
enum Cell {
    Null,
    Bool(bool),
    I64(i64),
    U64(u64),
    F64(f64),
    Text(Range<usize>),
    Bytes(Range<usize>),
}

impl Row {
    /// A row of the given values; checked against a schema when it is written.
    pub fn new(values: impl IntoIterator<Item = OwnedValue>) -> Row {
        let values: Vec<_> = values.into_iter().collect();
        let mut row = Row::of_nulls(values.len(), 0);
        for (column, value) in values.iter().enumerate() {
            row.set(column, value.as_value());
        }
        row
    }

    /// A row of NULLs, to be [`Row::set`], with room for so many bytes of texts.
    pub(super) fn of_nulls(columns: usize, text_bytes: usize) -> Row {
        let cells = vec![Cell::Null; columns].into();
        Row { cells, text: String::with_capacity(text_bytes), bytes: Vec::new() }
    }

    /// Gives a column that is NULL its value.
    pub(super) fn set(&mut self, column: usize, value: Value<'_>) {
        self.cells[column] = match value {
            Value::Null => Cell::Null,
            Value::Bool(v) => Cell::Bool(v),
            Value::I64(v) => Cell::I64(v),
            Value::U64(v) => Cell::U64(v),
            Value::F64(v) => Cell::F64(v),
            Value::Text(v) => {
                let start = self.text.len();
                self.text.push_str(v);
                Cell::Text(start..self.text.len())
            }
            Value::Bytes(v) => {
                let start = self.bytes.len();
                self.bytes.extend_from_slice(v);
                Cell::Bytes(start..self.bytes.len())
            }
        };
    }

    fn value_of(&self, cell: &Cell) -> Value<'_> {
        match cell {
            Cell::Null => Value::Null,
            Cell::Bool(v) => Value::Bool(*v),
            Cell::I64(v) => Value::I64(*v),
            Cell::U64(v) => Value::U64(*v),
            Cell::F64(v) => Value::F64(*v),
            Cell::Text(range) => Value::Text(&self.text[range.clone()]),
            Cell::Bytes(range) => Value::Bytes(&self.bytes[range.clone()]),
        }
    }

    /// A column's value.
    ///
    /// # Panics
    /// If the row has no such column.
    pub fn get(&self, column: usize) -> Value<'_> {
        self.value_of(&self.cells[column])
    }

    /// Every column's value.
    pub fn values(&self) -> impl ExactSizeIterator<Item = Value<'_>> {
        self.cells.iter().map(|cell| self.value_of(cell))
    }
}

impl PartialEq for Row {
    fn eq(&self, other: &Row) -> bool {
        self.values().eq(other.values())
    }
}

impl Eq for Row {}

impl fmt::Debug for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.values()).finish()
    }
}
