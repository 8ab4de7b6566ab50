//! Column types and values, borrowed and owned.
//!
//! Values of one type compare as their encoded keys do: NULL first, integers by number, floats in
//! IEEE 754 total order (so -0.0 is before 0.0, and NaN equals itself), text and bytes bytewise.

use serde::{Deserialize, Serialize};
use std::cmp::Ordering;
use std::fmt;

/// Type of a column. Persisted by position: append only.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Type {
    /// False or true.
    Bool,
    /// Signed integer, 64 bits.
    I64,
    /// Unsigned integer, 64 bits.
    U64,
    /// Floating point number, 64 bits.
    F64,
    /// UTF-8 text, compared bytewise.
    Text,
    /// Bytes.
    Bytes,
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Type::Bool => "bool",
            Type::I64 => "i64",
            Type::U64 => "u64",
            Type::F64 => "f64",
            Type::Text => "text",
            Type::Bytes => "bytes",
        })
    }
}

/// A column's value, borrowed.
///
/// ```
/// use weir::value::Value;
///
/// assert_eq!(Value::from(7), Value::I64(7));
/// assert_eq!(Value::from(7_u8), Value::U64(7));
/// assert_eq!(Value::from("x"), Value::Text("x"));
/// assert_eq!(Value::from(&vec![1, 2]), Value::Bytes(&[1, 2]));
/// assert_eq!(Value::from(None::<i64>), Value::Null);
/// assert!(Value::Null < Value::I64(i64::MIN));
/// ```
#[derive(Clone, Copy)]
pub enum Value<'a> {
    /// No value.
    Null,
    /// Of a [`Type::Bool`] column.
    Bool(bool),
    /// Of a [`Type::I64`] column.
    I64(i64),
    /// Of a [`Type::U64`] column.
    U64(u64),
    /// Of a [`Type::F64`] column.
    F64(f64),
    /// Of a [`Type::Text`] column.
    Text(&'a str),
    /// Of a [`Type::Bytes`] column.
    Bytes(&'a [u8]),
}

/// A column's value, owned. Persisted by position: append only.
#[derive(Clone, Serialize, Deserialize)]
pub enum OwnedValue {
    /// No value.
    Null,
    /// Of a [`Type::Bool`] column.
    Bool(bool),
    /// Of a [`Type::I64`] column.
    I64(i64),
    /// Of a [`Type::U64`] column.
    U64(u64),
    /// Of a [`Type::F64`] column.
    F64(f64),
    /// Of a [`Type::Text`] column.
    Text(String),
    /// Of a [`Type::Bytes`] column.
    Bytes(Vec<u8>),
}

impl<'a> Value<'a> {
    /// The type that the value belongs to; `None` for NULL.
    pub fn column_type(&self) -> Option<Type> {
        Some(match self {
            Value::Null => return None,
            Value::Bool(_) => Type::Bool,
            Value::I64(_) => Type::I64,
            Value::U64(_) => Type::U64,
            Value::F64(_) => Type::F64,
            Value::Text(_) => Type::Text,
            Value::Bytes(_) => Type::Bytes,
        })
    }

    /// A copy that borrows nothing.
    pub fn to_owned(&self) -> OwnedValue {
        match *self {
            Value::Null => OwnedValue::Null,
            Value::Bool(v) => OwnedValue::Bool(v),
            Value::I64(v) => OwnedValue::I64(v),
            Value::U64(v) => OwnedValue::U64(v),
            Value::F64(v) => OwnedValue::F64(v),
            Value::Text(v) => OwnedValue::Text(v.to_string()),
            Value::Bytes(v) => OwnedValue::Bytes(v.to_vec()),
        }
    }

    /// Whether this is NULL.
    pub fn is_null(&self) -> bool {
        matches!(self, Value::Null)
    }

    /// The number of an `i64` column.
    pub fn as_i64(&self) -> Option<i64> {
        if let Value::I64(v) = *self { Some(v) } else { None }
    }

    /// The number of a `u64` column.
    pub fn as_u64(&self) -> Option<u64> {
        if let Value::U64(v) = *self { Some(v) } else { None }
    }

    /// The number of an `f64` column.
    pub fn as_f64(&self) -> Option<f64> {
        if let Value::F64(v) = *self { Some(v) } else { None }
    }

    /// The truth of a `bool` column.
    pub fn as_bool(&self) -> Option<bool> {
        if let Value::Bool(v) = *self { Some(v) } else { None }
    }

    /// The text of a `text` column.
    pub fn as_str(&self) -> Option<&'a str> {
        if let Value::Text(v) = *self { Some(v) } else { None }
    }

    /// The bytes of a `bytes` column.
    pub fn as_bytes(&self) -> Option<&'a [u8]> {
        if let Value::Bytes(v) = *self { Some(v) } else { None }
    }

    fn rank(&self) -> u8 {
        self.column_type().map_or(0, |of| 1 + of as u8)
    }
}

impl Ord for Value<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Value::Bool(a), Value::Bool(b)) => a.cmp(b),
            (Value::I64(a), Value::I64(b)) => a.cmp(b),
            (Value::U64(a), Value::U64(b)) => a.cmp(b),
            (Value::F64(a), Value::F64(b)) => a.total_cmp(b),
            (Value::Text(a), Value::Text(b)) => a.cmp(b),
            (Value::Bytes(a), Value::Bytes(b)) => a.cmp(b),
            _ => self.rank().cmp(&other.rank()),
        }
    }
}

impl PartialOrd for Value<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Value<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Value<'_> {}

impl fmt::Debug for Value<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Null => f.write_str("NULL"),
            Value::Bool(v) => v.fmt(f),
            Value::I64(v) => v.fmt(f),
            Value::U64(v) => v.fmt(f),
            Value::F64(v) => v.fmt(f),
            Value::Text(v) => v.fmt(f),
            Value::Bytes(v) => write!(f, "b\"{}\"", v.escape_ascii()),
        }
    }
}

impl OwnedValue {
    /// The same value, borrowed.
    pub fn as_value(&self) -> Value<'_> {
        match self {
            OwnedValue::Null => Value::Null,
            OwnedValue::Bool(v) => Value::Bool(*v),
            OwnedValue::I64(v) => Value::I64(*v),
            OwnedValue::U64(v) => Value::U64(*v),
            OwnedValue::F64(v) => Value::F64(*v),
            OwnedValue::Text(v) => Value::Text(v),
            OwnedValue::Bytes(v) => Value::Bytes(v),
        }
    }
}

impl Ord for OwnedValue {
    fn cmp(&self, other: &Self) -> Ordering {
        self.as_value().cmp(&other.as_value())
    }
}

impl PartialOrd for OwnedValue {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for OwnedValue {
    fn eq(&self, other: &Self) -> bool {
        self.as_value() == other.as_value()
    }
}

impl Eq for OwnedValue {}

impl fmt::Debug for OwnedValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_value().fmt(f)
    }
}

macro_rules! from {
    ($($source:ty => $variant:ident($target:ty)),* $(,)?) => {$(
        impl From<$source> for Value<'_> {
            fn from(v: $source) -> Self {
                Value::$variant(<$target>::from(v))
            }
        }
        impl From<$source> for OwnedValue {
            fn from(v: $source) -> Self {
                OwnedValue::$variant(<$target>::from(v))
            }
        }
    )*};
}

from!(bool => Bool(bool), i8 => I64(i64), i16 => I64(i64), i32 => I64(i64), i64 => I64(i64),
      u8 => U64(u64), u16 => U64(u64), u32 => U64(u64), u64 => U64(u64), f32 => F64(f64), f64 => F64(f64));

impl<'a> From<&'a str> for Value<'a> {
    fn from(v: &'a str) -> Self {
        Value::Text(v)
    }
}

impl<'a> From<&'a String> for Value<'a> {
    fn from(v: &'a String) -> Self {
        Value::Text(v)
    }
}

impl<'a> From<&'a [u8]> for Value<'a> {
    fn from(v: &'a [u8]) -> Self {
        Value::Bytes(v)
    }
}

impl<'a> From<&'a Vec<u8>> for Value<'a> {
    fn from(v: &'a Vec<u8>) -> Self {
        Value::Bytes(v)
    }
}

impl<'a, const N: usize> From<&'a [u8; N]> for Value<'a> {
    fn from(v: &'a [u8; N]) -> Self {
        Value::Bytes(v)
    }
}

impl<'a> From<&'a OwnedValue> for Value<'a> {
    fn from(v: &'a OwnedValue) -> Self {
        v.as_value()
    }
}

impl<'a, T: Into<Value<'a>>> From<Option<T>> for Value<'a> {
    fn from(v: Option<T>) -> Self {
        v.map_or(Value::Null, Into::into)
    }
}

impl From<Value<'_>> for OwnedValue {
    fn from(v: Value<'_>) -> Self {
        v.to_owned()
    }
}

impl From<&str> for OwnedValue {
    fn from(v: &str) -> Self {
        OwnedValue::Text(v.to_string())
    }
}

impl From<String> for OwnedValue {
    fn from(v: String) -> Self {
        OwnedValue::Text(v)
    }
}

impl From<Vec<u8>> for OwnedValue {
    fn from(v: Vec<u8>) -> Self {
        OwnedValue::Bytes(v)
    }
}
