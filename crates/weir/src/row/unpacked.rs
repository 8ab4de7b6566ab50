//! A column's value while it is read.

use crate::key::unescape;
use crate::value::{OwnedValue, Type, Value};

/// A value by its parts, which stay in registers. A [`Value`] that comes together from the branches
/// of the types goes through memory, where it is written in pieces and read as one: a CPU waits for
/// that longer than decoding takes.
#[derive(Clone, Copy)]
pub(crate) struct Unpacked<'a> {
    /// `None` for NULL.
    of: Option<Type>,
    /// A number or a bool, by its bits.
    bits: u64,
    /// A text or bytes.
    bytes: &'a [u8],
    /// Whether those are escaped, as keys have them.
    escaped: bool,
}

impl<'a> Unpacked<'a> {
    pub(crate) const NULL: Unpacked<'static> =
        Unpacked { of: None, bits: 0, bytes: &[], escaped: false };

    /// A number or a bool.
    #[inline(always)]
    pub(crate) fn number(of: Type, bits: u64) -> Unpacked<'a> {
        Unpacked { of: Some(of), bits, ..Unpacked::NULL }
    }

    /// `None` if the byte is no bool.
    #[inline(always)]
    pub(crate) fn bool(byte: u8) -> Option<Unpacked<'a>> {
        (byte <= 1).then(|| Unpacked::number(Type::Bool, byte.into()))
    }

    /// A text or bytes.
    #[inline(always)]
    pub(crate) fn bytes(of: Type, bytes: &'a [u8], escaped: bool) -> Unpacked<'a> {
        Unpacked { of: Some(of), bits: 0, bytes, escaped }
    }

    #[inline(always)]
    pub(crate) fn from_owned(value: &'a OwnedValue) -> Unpacked<'a> {
        match value {
            OwnedValue::Null => Unpacked::NULL,
            OwnedValue::Bool(v) => Unpacked::number(Type::Bool, u64::from(*v)),
            OwnedValue::I64(v) => Unpacked::number(Type::I64, *v as u64),
            OwnedValue::U64(v) => Unpacked::number(Type::U64, *v),
            OwnedValue::F64(v) => Unpacked::number(Type::F64, v.to_bits()),
            OwnedValue::Text(v) => Unpacked::bytes(Type::Text, v.as_bytes(), false),
            OwnedValue::Bytes(v) => Unpacked::bytes(Type::Bytes, v, false),
        }
    }

    /// What is escaped, of a text or bytes that are.
    #[inline(always)]
    pub(crate) fn escaped(&self) -> Option<&'a [u8]> {
        self.escaped.then_some(self.bytes)
    }

    /// The value, which isn't escaped; `None` for a text that is none.
    #[inline(always)]
    pub(crate) fn value(self) -> Option<Value<'a>> {
        debug_assert!(!self.escaped);
        let Some(of) = self.of else { return Some(Value::Null) };
        Some(match of {
            Type::Bool => Value::Bool(self.bits != 0),
            Type::I64 => Value::I64(self.bits as i64),
            Type::U64 => Value::U64(self.bits),
            Type::F64 => Value::F64(f64::from_bits(self.bits)),
            Type::Text => Value::Text(text(self.bytes)?),
            Type::Bytes => Value::Bytes(self.bytes),
        })
    }

    /// A copy of the value; `None` for a text that is none.
    pub(crate) fn to_owned(self) -> Option<OwnedValue> {
        match (self.escaped(), self.of) {
            (Some(bytes), Some(of)) => unescape(of, bytes),
            _ => self.value().map(|value| value.to_owned()),
        }
    }
}

/// The bytes as text; `None` if they are none.
#[inline(always)]
fn text(bytes: &[u8]) -> Option<&str> {
    if bytes.is_ascii() {
        // SAFETY: ASCII is UTF-8.
        return Some(unsafe { std::str::from_utf8_unchecked(bytes) });
    }
    std::str::from_utf8(bytes).ok()
}
