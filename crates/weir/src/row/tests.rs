use super::*;
use crate::key::tests::{borrow, rows, schema};
use crate::key::{KeyReader, encode_primary_key};
use proptest::prelude::*;

fn encode(schema: &Schema, row: &[Value<'_>]) -> (Vec<u8>, Vec<u8>) {
    let (mut key, mut value) = (Vec::new(), Vec::new());
    encode_primary_key(schema, row, &mut key).unwrap();
    encode_value(schema, row, &mut value).unwrap();
    (key, value)
}

/// Columns forward, backward, and with some left out.
fn in_many_orders(columns: usize) -> impl Iterator<Item = usize> {
    let all = 0..columns;
    all.clone().rev().chain(all.clone()).chain(all.step_by(2))
}

proptest! {
    #[test]
    fn a_row_comes_back(owned in rows()) {
        let (schema, row) = (schema(), borrow(&owned));
        let (key, value) = encode(&schema, &row);
        let read = RowRef::primary(&schema, &key, &value);
        for column in in_many_orders(row.len()) {
            prop_assert_eq!(read.get(column).unwrap(), row[column]);
        }
        prop_assert!(read.to_row().unwrap() == Row::new(owned.clone()));
    }

    #[test]
    fn index_entries_lead_to_the_row(owned in rows()) {
        let (schema, row) = (schema(), borrow(&owned));
        let (pk, stored) = encode(&schema, &row);
        for index in 0..schema.indexes().len() {
            let (mut key, mut value) = (Vec::new(), Vec::new());
            index_entry(&schema, index, &row, &mut key, &mut value).unwrap();
            let (mut key_2, mut value_2) = (Vec::new(), Vec::new());
            RowRef::primary(&schema, &pk, &stored)
                .index_entry(index, &mut key_2, &mut value_2)
                .unwrap();
            prop_assert_eq!((&key, &value), (&key_2, &value_2));

            let mut found = Vec::new();
            primary_key_of_entry(&schema, index, &key, &value, &mut found).unwrap();
            prop_assert_eq!(&found, &pk);

            let entry = RowRef::index(&schema, index, &key, &value);
            for column in in_many_orders(row.len()) {
                if entry.covers(column) {
                    prop_assert_eq!(entry.get(column).unwrap(), row[column]);
                } else {
                    let not_covered = matches!(entry.get(column), Err(RowError::NotCovered { .. }));
                    prop_assert!(not_covered);
                }
            }
        }
    }

    #[test]
    fn any_bytes_are_a_row_or_an_error(
        mut bytes: Vec<u8>, other: Vec<u8>, owned in rows(), at: usize, bit in 0..8
    ) {
        let schema = schema();
        let touch = |key: &[u8], value: &[u8]| {
            let all = [KeyOf::Primary].into_iter().chain((0..schema.indexes().len()).map(KeyOf::Index));
            for of in all {
                let row = RowRef::new(&schema, of, key, value);
                for column in in_many_orders(schema.columns().len()) {
                    let anew = RowRef::new(&schema, of, key, value);
                    assert_eq!(row.get(column), anew.get(column), "{of:?} {column}");
                }
            }
            let _ = format!("{:?}", RowRef::primary(&schema, key, value));
            let _ = RowRef::primary(&schema, key, value).to_row();
            for index in 0..schema.indexes().len() {
                let _ = format!("{:?}", RowRef::index(&schema, index, key, value));
                let _ = primary_key_of_entry(&schema, index, key, value, &mut Vec::new());
                let (mut k, mut v) = (Vec::new(), Vec::new());
                let _ = RowRef::primary(&schema, key, value).index_entry(index, &mut k, &mut v);
            }
        };
        touch(&bytes, &other);
        let (mut key, mut value) = encode(&schema, &borrow(&owned));
        bytes.extend_from_slice(&key);
        touch(&bytes, &value);
        let len = value.len();
        value[at % len] ^= 1u8 << bit;
        touch(&key, &value);
        value.truncate(at % len);
        touch(&key, &value);
        let len = key.len();
        key[at % len] ^= 1u8 << bit;
        touch(&key, &value);
    }
}

fn small() -> Schema {
    Schema::builder()
        .column("id", Type::U64)
        .nullable_column("n", Type::I64)
        .column("f", Type::F64)
        .nullable_column("t", Type::Text)
        .column("b", Type::Bool)
        .column("u", Type::U64)
        .primary_key(&["id"])
        .unique_index("by_t", &["t"])
        .build()
        .unwrap()
}

#[test]
fn persisted_form() {
    let schema = small();
    let row = [1u64.into(), (-65).into(), 1.0.into(), "hi".into(), true.into(), 300u64.into()];
    let (_, value) = encode(&schema, &row);
    let float = [0, 0, 0, 0, 0, 0, 0xf0, 0x3f];
    let golden = [&[0, 0x81, 1][..], &float, &[2, b'h', b'i', 1, 0xac, 2]].concat();
    assert_eq!(value, golden);
    let row = [1u64.into(), Value::Null, 1.0.into(), Value::Null, true.into(), 0u64.into()];
    let (_, value) = encode(&schema, &row);
    assert_eq!(value, [&[3][..], &float, &[1, 0]].concat());
    assert_eq!(
        format!("{:?}", RowRef::primary(&schema, &[1], &value)),
        r#"{"id": 1, "n": NULL, "f": 1.0, "t": NULL, "b": true, "u": 0}"#
    );
}

#[test]
fn unique_entries_hold_the_primary_key_unless_null() {
    let schema = small();
    let mut row = [9u64.into(), Value::Null, 1.0.into(), "t".into(), true.into(), 0u64.into()];
    let entry = |row: &[Value<'_>]| {
        let (mut key, mut value) = (Vec::new(), Vec::new());
        index_entry(&schema, 0, row, &mut key, &mut value).unwrap();
        (key, value)
    };
    assert_eq!(entry(&row), (vec![1, b't', 0, 1], vec![9]));
    row[3] = Value::Null;
    let (key, value) = entry(&row);
    assert_eq!((&key[..], &value[..]), (&[0, 9][..], &[][..]));
    assert_eq!(KeyReader::new(&key).skip(&schema.columns()[3]), Some(&[0][..]));
}

#[test]
fn wrong_rows_name_the_column_and_change_nothing() {
    let schema = small();
    let good = [1u64.into(), 2.into(), 1.0.into(), "t".into(), true.into(), 0u64.into()];
    let message = |at: usize, value| {
        let (mut row, mut out) = (good, vec![9]);
        row[at] = value;
        let error = encode_value(&schema, &row, &mut out).unwrap_err();
        assert_eq!(out, [9]);
        error.to_string()
    };
    assert_eq!(
        message(3, 7.into()),
        "the column `t` is of type text; a value of type i64 was given"
    );
    assert_eq!(message(4, Value::Null), "the column `b` must not be NULL");
    let error = encode_value(&schema, &good[..3], &mut Vec::new()).unwrap_err();
    assert_eq!(error.to_string(), "the row has 6 columns; 3 values were given");
}

#[test]
fn persisted_form_with_columns_added_and_dropped() {
    let old = small();
    let before = [1u64.into(), 5.into(), 1.0.into(), "hi".into(), true.into(), 300u64.into()];
    let (key, shorter) = encode(&old, &before);
    let schema = old
        .with_column("s", Type::Text, "new".into())
        .and_then(|s| s.with_column("m", Type::I64, Value::Null))
        .and_then(|s| s.without_column("n"))
        .and_then(|s| s.without_column("f"))
        .unwrap();
    let read = |schema: &Schema, value: &[u8]| -> Vec<OwnedValue> {
        let row = RowRef::primary(schema, &key, value);
        let whole = row.to_row().unwrap();
        for column in in_many_orders(schema.columns().len()) {
            assert_eq!(row.get(column).unwrap(), whole.get(column));
        }
        whole.values().map(|value| value.to_owned()).collect()
    };
    let default = [1u64.into(), "hi".into(), true.into(), 300u64.into(), "new".into(), Value::Null];
    assert_eq!(borrow(&read(&schema, &shorter)), default);

    let row = [1u64.into(), "hi".into(), true.into(), 300u64.into(), "x".into(), (-1).into()];
    let (_, value) = encode(&schema, &row);
    let golden = [&[1][..], &[0; 8], &[2, b'h', b'i', 1, 0xac, 2, 1, 1, b'x', 1, 1]].concat();
    assert_eq!(value, golden);
    assert_eq!(borrow(&read(&schema, &value)), row);
    let last_null = [&row[..5], &[Value::Null]].concat();
    let (_, value) = encode(&schema, &last_null);
    assert_eq!(value, [&golden[..golden.len() - 2], &[0]].concat());
    assert_eq!(borrow(&read(&schema, &value)), last_null);

    // An added column is dropped that isn't the last in rows.
    let schema = schema.without_column("s").unwrap();
    let fewer = [&row[..4], &row[5..]].concat();
    assert_eq!(borrow(&read(&schema, &golden)), fewer);
    let (_, value) = encode(&schema, &fewer);
    assert_eq!(borrow(&read(&schema, &value)), fewer);
    let mut wrong = golden;
    let tag = wrong.len() - 2;
    wrong[tag] = 2;
    let error = RowRef::primary(&schema, &key, &wrong).get(4).unwrap_err();
    assert_eq!(error, RowError::Malformed { column: "m".into() });
}

#[test]
fn a_value_that_an_added_column_may_not_have_is_refused() {
    let schema = small().with_column("s", Type::U64, 0u64.into()).unwrap();
    let row = |added| {
        let all = [1u64.into(), 5.into(), 1.0.into(), "hi".into(), true.into(), 3u64.into(), added];
        encode_value(&schema, &all, &mut Vec::new())
    };
    assert_eq!(row(Value::Null), Err(RowError::Null { column: "s".into() }));
    assert!(matches!(row(1.into()), Err(RowError::Type { .. })));
}
