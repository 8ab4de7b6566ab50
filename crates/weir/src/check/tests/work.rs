//! Nothing is found after random work, in one thread or in many, crashes and restarts included.

use super::*;

/// A transaction under way, and the rows as they will be once it commits.
struct Open {
    txn: Txn,
    writes: Vec<(usize, Vec<u8>, Option<Vec<u8>>)>,
}

impl Open {
    fn step(&mut self, bed: &Bed, rng: &mut Rng) -> Result<(), TxnError> {
        let at = rng.usize(..bed.trees.len());
        let (key, value) = (random_key(rng), random_value(rng));
        let op = match rng.u32(..10) {
            0..3 => Op::Delete,
            3..5 => Op::Insert(&value),
            5..7 => Op::Update(&value),
            _ => Op::Upsert(&value),
        };
        if let Outcome::Done(_) = self.txn.write(bed.trees[at].0, &key, op)? {
            let after = (!matches!(op, Op::Delete)).then_some(value);
            self.writes.push((at, key, after));
        }
        Ok(())
    }
}

/// A tree that is created, filled, and dropped, unless a rollback does one of the two.
fn short_lived_tree(bed: &Bed, rng: &mut Rng) {
    let mut txn = bed.txns.begin();
    let tree = txn.create_tree().unwrap();
    for _ in 0..rng.u32(..60) {
        let (key, value) = (random_key(rng), random_value(rng));
        txn.write(tree, &key, Op::Upsert(&value)).unwrap();
    }
    if rng.bool() {
        return txn.rollback().unwrap();
    }
    txn.commit(Durability::Relaxed).unwrap();
    let mut txn = bed.txns.begin();
    for _ in 0..rng.u32(..10) {
        txn.write(tree, &random_key(rng), Op::Delete).unwrap();
    }
    txn.drop_tree(tree).unwrap();
    if rng.bool() {
        txn.rollback().unwrap();
        txn = bed.txns.begin();
        txn.drop_tree(tree).unwrap();
    }
    txn.commit(Durability::Relaxed).unwrap();
}

/// A transaction that only reads, and the rows of each tree as it sees them.
struct Snapshot {
    txn: Txn,
    view: View,
    rows: Vec<Rows>,
}

impl Snapshot {
    /// Looks some rows up.
    fn probe(&self, bed: &Bed, rng: &mut Rng) {
        for ((tree, _), rows) in bed.trees.iter().zip(&self.rows) {
            for n in 0..100 {
                let key = random_key(rng);
                let (got, want) = (get_in(&self.txn, self.view, *tree, &key), rows.get(&key));
                assert!(got.as_ref() == want, "probe {n}: {}", self.explain(bed, *tree, &key));
            }
        }
    }

    /// What there is to know of an entry that is not as it should be.
    fn explain(&self, bed: &Bed, tree: Tree, key: &[u8]) -> String {
        let described = retry(bed.storage(), || {
            let leaf = tree.leaf(bed.storage(), crate::tree::Target::At(key), false)?;
            let (slot, found) = leaf.seek(key);
            let entry = found.then(|| leaf.entry(slot));
            let seen = entry.and_then(|e| e.version).map(|v| bed.txns.sees(self.view, v.txn));
            let (view, horizon) = (self.view, bed.txns.horizon());
            let entry = entry.map(|e| (e.flags, e.version, e.value.len()));
            Ok::<_, Restart<Fault>>(format!("{key:?} {entry:?} {view:?} {seen:?} {horizon}"))
        });
        described.unwrap()
    }
}

/// Interleaved transactions with savepoints, rollbacks and purge; some are left open at the end.
fn random_work(bed: &mut Bed, rng: &mut Rng, steps: usize) -> Vec<Open> {
    let mut open: Vec<Open> = Vec::new();
    let mut snapshots: Vec<Snapshot> = Vec::new();
    for _ in 0..steps {
        if open.len() < 3 {
            let mut txn = bed.txns.begin();
            txn.lock_timeout = Duration::ZERO;
            open.push(Open { txn, writes: Vec::new() });
        }
        let at = rng.usize(..open.len());
        match rng.u32(..100) {
            0..80 => match open[at].step(bed, rng) {
                Ok(()) => {}
                Err(TxnError::Lock(_)) if rng.bool() => {}
                Err(TxnError::Lock(_)) => open.swap_remove(at).txn.rollback().unwrap(),
                Err(error) => panic!("{error}"),
            },
            80..84 => {
                let o = &mut open[at];
                let (to, kept) = (o.txn.savepoint(), o.writes.len());
                for _ in 0..rng.u32(1..20) {
                    let _ = o.step(bed, rng);
                }
                o.txn.rollback_to(to).unwrap();
                o.writes.truncate(kept);
            }
            84..92 => {
                let done = open.swap_remove(at);
                done.txn.commit(Durability::Relaxed).unwrap();
                for (tree, key, value) in done.writes {
                    match value {
                        Some(value) => bed.trees[tree].1.insert(key, value),
                        None => bed.trees[tree].1.remove(&key),
                    };
                }
            }
            92..93 => open.swap_remove(at).txn.rollback().unwrap(),
            93..94 => short_lived_tree(bed, rng),
            94..96 => {
                bed.txns.purge_up_to(rng.usize(1..20)).unwrap();
            }
            96..98 if snapshots.len() < 2 => {
                let mut txn = bed.txns.begin();
                let view = txn.view();
                let rows = bed.trees.iter().map(|t| t.1.clone()).collect();
                snapshots.push(Snapshot { txn, view, rows });
            }
            _ => {
                if let Some(snapshot) = snapshots.pop() {
                    snapshot.probe(bed, rng);
                }
            }
        }
    }
    open
}

#[test]
fn nothing_is_found_after_random_work() {
    let seeds = std::env::var("WEIR_SEEDS").map_or(12, |n| n.parse().unwrap());
    for seed in 0..seeds {
        let mut rng = Rng::with_seed(seed);
        let mut bed = Bed::with_frames(seed, 2, [64, 100, 400][seed as usize % 3]);
        for round in 0..3 {
            let when = format!("seed {seed}, round {round}");
            let open = random_work(&mut bed, &mut rng, 1500);
            let crash = round == 1;
            if crash {
                // What was acknowledged as relaxed counts once the log is synced.
                bed.storage().redo.write_step(true).unwrap();
                let crashed = bed.disk.crash(seed);
                drop(open);
                bed = Bed { disk: crashed, ..bed }.crashed(seed + 1);
            } else {
                drop(open);
            }
            bed.assert_clean(&when);
            bed.assert_rows(&when);
            if rng.bool() {
                bed.purge_all();
                let summary = bed.assert_clean(&format!("{when}, purged"));
                assert_eq!(summary.dead_entries, 0, "{when}: purge leaves nothing dead");
            }
        }
    }
}

/// One thread's share of the work: rows whose keys begin with its number.
fn thread_work(txns: &Arc<Transactions>, tree: Tree, number: u8, turns: usize) -> Rows {
    let mut rng = Rng::with_seed(u64::from(number));
    let mut rows = Rows::new();
    for turn in 0..turns {
        let mut txn = txns.begin();
        let mut after = rows.clone();
        for _ in 0..rng.u32(1..12) {
            let mut key = random_key(&mut rng);
            key.insert(0, number);
            let value = random_value(&mut rng);
            if rng.u32(..3) == 0 {
                txn.write(tree, &key, Op::Delete).unwrap();
                after.remove(&key);
            } else {
                txn.write(tree, &key, Op::Upsert(&value)).unwrap();
                after.insert(key, value);
            }
        }
        match rng.u32(..5) {
            0 => txn.rollback().unwrap(),
            _ => {
                txn.commit(Durability::Relaxed).unwrap();
                rows = after;
            }
        }
        if turn % 8 == 0 {
            txns.purge_up_to(30).unwrap();
        }
    }
    rows
}

#[test]
fn nothing_is_found_after_work_of_many_threads() {
    for seed in 0..3 {
        let mut bed = Bed::with_frames(seed, 1, 150);
        let open = StorageOptions { inline: false, ..options(150) };
        let disk = bed.disk.process_kill();
        let on: Arc<dyn weir_os::Disk> = Arc::new(disk.clone());
        let storage = Arc::new(Storage::open(on, &open, OnProgress::default()).unwrap());
        let background = Background::start(&storage).unwrap();
        let txns = recovered(storage.clone()).unwrap();
        let tree = bed.trees[0].0;
        bed.trees[0].1 = std::thread::scope(|scope| {
            let work = |n| {
                let txns = &txns;
                scope.spawn(move || thread_work(txns, tree, n, 300))
            };
            let threads: Vec<_> = (0..4).map(work).collect();
            threads.into_iter().flat_map(|t| t.join().unwrap()).collect()
        });
        bed = Bed { disk, txns, ..bed };
        bed.assert_rows("after the threads");
        drop(background);
        storage.check().unwrap();
        storage.redo.write_step(true).unwrap();
        drop(storage);
        bed = bed.crashed(seed);
        bed.assert_clean("after a crash");
        bed.assert_rows("after a crash");
        bed.purge_all();
        assert_eq!(bed.assert_clean("after purge").dead_entries, 0);
    }
}
