//! Leaves that random keys fill together don't split together.

use fastrand::Rng;
use std::collections::BTreeMap;
use weir_page::node::{self, Builder};
use weir_page::{Entry, Flags, Page, PageId, TreeId};

const TREE: TreeId = TreeId(3);

/// The leaves of a tree, by the lowest key of each.
struct Leaves {
    pages: BTreeMap<Vec<u8>, Box<Page>>,
}

impl Leaves {
    fn insert(&mut self, key: [u8; 8]) {
        let flags = Flags::default();
        let entry = Entry { flags, version: None, value: &[7; 12] };
        loop {
            let count = self.pages.len() as u32;
            let (_, page) =
                self.pages.range_mut(..=key.to_vec()).next_back().expect("one has all keys");
            let (slot, _) = node::search(page, &key);
            if node::fits_insert(page, key.len(), entry.value.len(), false) {
                node::insert(page, slot, &key, &entry);
                return;
            }
            let split = node::plan_leaf_split(page, slot, &key);
            let upper = node::upper(page).map(<[u8]>::to_vec);
            let id = PageId(count + 1);
            let mut right = Builder::new(id, TREE, 0, &split.separator, upper.as_deref());
            node::copy_slots(page, split.at..node::count(page), &mut right);
            node::truncate(page, split.at, &split.separator);
            self.pages.insert(split.separator, right.finish());
        }
    }
}

#[test]
fn splits_of_random_inserts_come_evenly() {
    const ROWS: u64 = 200_000;
    let mut rng = Rng::with_seed(1);
    let first = Builder::new(PageId(1), TREE, 0, &[], None).finish();
    let mut leaves = Leaves { pages: [(Vec::new(), first)].into() };
    // Splits while the rows grow by a twentieth, as a share of the leaves that there were.
    let (mut shares, mut before, mut next) = (Vec::new(), 1, 1000);
    for row in 0..ROWS {
        leaves.insert(rng.u64(..).to_be_bytes());
        if row == next {
            let count = leaves.pages.len();
            if row > ROWS / 4 {
                shares.push((count - before) as f64 / before as f64);
            }
            (before, next) = (count, next + next / 20);
        }
    }
    let mean = shares.iter().sum::<f64>() / shares.len() as f64;
    let most = shares.iter().copied().fold(0.0, f64::max);
    println!("splits while rows grow by a twentieth: mean {mean:.3} of the leaves, most {most:.3}");
    assert!(most < 2.5 * mean, "a wave of splits: {shares:.3?}");
}
