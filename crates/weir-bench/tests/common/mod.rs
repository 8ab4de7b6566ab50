//! What a table must hold after it was written to, whichever the engine.

use std::fmt::Display;
use std::sync::atomic::AtomicBool;

use weir_bench::engine::{Index, IndexEntry, Scanned, Session};
use weir_bench::row::{Generator, Row, Secondary};

/// Rows of a table.
pub fn rows(table: u32, ids: std::ops::Range<u64>) -> Vec<Row> {
    let mut rows = Vec::new();
    Generator::new(11).rows(table, ids, &mut rows);
    rows
}

/// All entries of `index` that the rows `ids` of `table` must have, in order.
fn entries(table: u32, ids: std::ops::Range<u64>, index: Secondary) -> Vec<IndexEntry> {
    let mut entries: Vec<_> = rows(table, ids)
        .iter()
        .map(|row| IndexEntry { key: index.key(row), id: row.transactionid })
        .collect();
    entries.sort();
    entries
}

/// Checks rows, indexes and their order against the generator.
pub fn check(kind: impl Display, session: &mut dyn Session, table: u32, ids: std::ops::Range<u64>) {
    for index in Secondary::ALL {
        let expected = entries(table, ids.clone(), index);
        let mut found = Vec::new();
        session.range(index, &[0; 3], usize::MAX, &mut found).unwrap();
        assert!(found == expected, "{kind}: contents of {}", index.name());
        for start in expected.iter().step_by(97) {
            found.clear();
            session.range(index, &start.key, 10, &mut found).unwrap();
            let from = expected.partition_point(|entry| entry.key < start.key);
            let to = expected.len().min(from + 10);
            assert_eq!(found, expected[from..to], "{kind}: range of {}", index.name());
        }
    }
    let (of_rows, id_xor) = (ids.end - ids.start, ids.clone().fold(0, |xor, id| xor ^ id));
    let text = |row: &Row| row.data.as_bytes().len() as u64;
    for index in Index::ALL {
        let text_bytes = match index {
            Index::Primary => rows(table, ids.clone()).iter().map(text).sum(),
            Index::Secondary(_) => 0,
        };
        let expected = Scanned { rows: of_rows, id_xor, text_bytes };
        assert_eq!(
            session.scan(index, &AtomicBool::new(false)).unwrap(),
            expected,
            "{kind} {index:?}"
        );
    }
    for id in ids.start.saturating_sub(3)..ids.end + 3 {
        let expected = ids.contains(&id).then(|| Generator::new(11).row(table, id));
        assert_eq!(session.get(id).unwrap(), expected, "{kind}: row {id}");
    }
}

/// Inserts rows in commits of some length.
pub fn load(session: &mut dyn Session, table: u32, ids: std::ops::Range<u64>, commit: usize) {
    for batch in rows(table, ids).chunks(commit) {
        session.write(batch, 0..0).unwrap();
    }
}
