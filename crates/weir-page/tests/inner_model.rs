//! An inner page under random operations against a `BTreeMap`.

mod common;

use common::{Sizes, random_key, what_fits};
use fastrand::Rng;
use std::collections::BTreeMap;
use weir_page::node::{self, Builder};
use weir_page::{Page, PageId, SharedPage, TreeId};

/// An inner page; the first child's key is the lower fence.
struct Model {
    page: Box<Page>,
    children: BTreeMap<Vec<u8>, PageId>,
    lower: Vec<u8>,
    upper: Option<Vec<u8>>,
}

impl Model {
    fn new(lower: Vec<u8>, upper: Option<Vec<u8>>, child: PageId) -> Model {
        let mut b = Builder::new(PageId(9), TreeId(3), 2, &lower, upper.as_deref());
        b.push_child(&lower, child);
        let children = [(lower.clone(), child)].into();
        Model { page: b.finish(), children, lower, upper }
    }

    fn check(&self, rng: &mut Rng, sizes: Sizes) {
        node::validate(&self.page).expect("a page stays well formed");
        let p = &*self.page;
        assert_eq!((node::lower(p), node::upper(p)), (&self.lower[..], self.upper.as_deref()));
        assert_eq!((node::count(p), p.level()), (self.children.len(), 2));
        for (slot, child) in self.children.values().enumerate() {
            assert_eq!(node::child(p, slot), *child);
        }
        // SAFETY: the page lives on, unchanged, while it is read.
        let shared = unsafe { SharedPage::new(p) };
        for _ in 0..4 {
            let key = self.covered_key(rng, sizes);
            let (_, child) = self.children.range(..=key.clone()).next_back().expect("a child");
            let slot = node::child_slot(p, &key);
            assert_eq!(node::child(p, slot), *child);
            assert_eq!((shared.child_slot(&key), shared.child(slot)), (slot, *child));
        }
    }

    fn covered_key(&self, rng: &mut Rng, sizes: Sizes) -> Vec<u8> {
        for _ in 0..10 {
            let mut key = random_key(rng, sizes);
            if rng.bool() {
                let n = rng.usize(0..self.children.len());
                key = self.children.keys().nth(n).expect("n is below the length").clone();
                if key.len() < node::MAX_KEY && rng.bool() {
                    key.push(0);
                }
            }
            if node::covers(&self.page, &key) {
                return key;
            }
        }
        self.lower.clone()
    }

    /// Inserts a child, splitting as often as it takes; returns the number of splits.
    fn put_splitting(&mut self, key: &[u8], child: PageId) -> usize {
        for splits in 0.. {
            let slot = node::child_slot(&self.page, key) + 1;
            if node::fits_child(&self.page, key.len()) {
                node::insert_child(&mut self.page, slot, key, child);
                self.children.insert(key.to_vec(), child);
                return splits;
            }
            self.split(slot, key);
        }
        unreachable!("the loop only returns")
    }

    fn split(&mut self, slot: usize, key: &[u8]) {
        let n = node::count(&self.page);
        let split = node::plan_inner_split(&self.page, slot);
        assert!(split.at >= 1 && split.at < n);
        assert_eq!(Some(&split.separator), self.children.keys().nth(split.at));
        let mut b = Builder::new(PageId(10), TreeId(3), 2, &split.separator, self.upper.as_deref());
        node::copy_slots(&self.page, split.at..n, &mut b);
        let right = b.finish();
        node::validate(&right).expect("the right half is well formed");
        node::truncate(&mut self.page, split.at, &split.separator);
        node::validate(&self.page).expect("the left half is well formed");
        assert_eq!(node::count(&self.page) + node::count(&right), n);
        let right_children = self.children.split_off(&split.separator);
        if key < split.separator.as_slice() {
            self.upper = Some(split.separator);
        } else {
            (self.page, self.children, self.lower) = (right, right_children, split.separator);
        }
    }

    fn remove(&mut self, slot: usize) {
        let key = self.children.keys().nth(slot).expect("the slot exists").clone();
        node::remove(&mut self.page, slot);
        self.children.remove(&key);
        if slot == 0 {
            // The next child takes over the range.
            let (_, child) = self.children.pop_first().expect("another child");
            self.children.insert(self.lower.clone(), child);
        }
    }
}

fn random_model(rng: &mut Rng, sizes: Sizes) -> Model {
    let (a, b) = (random_key(rng, sizes), random_key(rng, sizes));
    let child = PageId(rng.u32(1..));
    match rng.u8(0..3) {
        0 => Model::new(Vec::new(), None, child),
        1 if a < b => Model::new(a, Some(b), child),
        _ => Model::new(a, None, child),
    }
}

#[test]
fn random_operations_and_splits() {
    let mut most = 0;
    for seed in 0..500 {
        let rng = &mut Rng::with_seed(seed);
        let sizes = Sizes::random(rng);
        let mut m = random_model(rng, sizes);
        for _ in 0..150 {
            let n = m.children.len();
            if rng.u8(0..4) == 0 && n > 1 {
                m.remove(rng.usize(0..n));
            } else {
                let key = m.covered_key(rng, sizes);
                if !m.children.contains_key(&key) {
                    most = most.max(m.put_splitting(&key, PageId(rng.u32(1..))));
                }
            }
            m.check(rng, sizes);
        }
    }
    assert!(most <= 3, "{most} splits for one child");
}

#[test]
fn ascending_children_leave_full_pages() {
    let mut m = Model::new(Vec::new(), None, PageId(1));
    for i in 1..20_000u32 {
        let key = i.to_be_bytes();
        let slot = node::count(&m.page);
        if !node::fits_child(&m.page, key.len()) {
            assert_eq!(node::plan_inner_split(&m.page, slot).at, slot - 1);
        }
        m.put_splitting(&key, PageId(i));
    }
}

#[test]
fn three_children_with_the_longest_keys_split() {
    let key = |last: u8| {
        let mut key = vec![b'k'; node::MAX_KEY];
        key[0] = last;
        key
    };
    let mut m = Model::new(key(b'a'), Some(key(b'z')), PageId(1));
    assert_eq!(m.put_splitting(&key(b'd'), PageId(2)), 0);
    assert_eq!(m.put_splitting(&key(b'f'), PageId(3)), 0);
    assert_eq!(m.put_splitting(&key(b'h'), PageId(4)), 1);
}

#[test]
fn removing_the_first_child_leaves_no_key_behind() {
    let mut m = Model::new(Vec::new(), None, PageId(1));
    m.put_splitting(b"kkkkkk", PageId(2));
    m.put_splitting(b"nnnnnn", PageId(3));
    let free = node::free_bytes(&m.page);
    m.remove(0);
    m.check(&mut Rng::with_seed(0), Sizes::Tiny);
    assert_eq!(node::suffix(&m.page, 0), b"");
    assert_eq!(node::free_bytes(&m.page), free + 4 + 6 + node::SLOT);
    m.remove(1);
    m.check(&mut Rng::with_seed(0), Sizes::Tiny);
}

#[test]
fn merges_never_run_out_of_room() {
    let mut merges = 0;
    for seed in 0..2000 {
        let rng = &mut Rng::with_seed(seed);
        let sizes = Sizes::random(rng);
        let mut fences = [random_key(rng, sizes), random_key(rng, sizes), random_key(rng, sizes)];
        fences.sort();
        let [a, b, c] = fences;
        if a == b || b == c {
            continue;
        }
        let c = rng.bool().then_some(c);
        let mut left = Model::new(a.clone(), Some(b.clone()), PageId(1));
        let mut right = Model::new(b.clone(), c.clone(), PageId(2));
        for m in [&mut left, &mut right] {
            for _ in 0..rng.usize(0..40) {
                let key = m.covered_key(rng, sizes);
                if !m.children.contains_key(&key) && node::fits_child(&m.page, key.len()) {
                    m.put_splitting(&key, PageId(rng.u32(1..)));
                }
            }
        }
        if node::can_merge(&left.page, &right.page) {
            merges += 1;
            let page = node::merged(&left.page, &right.page);
            let children = left.children.into_iter().chain(right.children).collect();
            Model { page, children, lower: a, upper: c }.check(rng, sizes);
        }
    }
    assert!(merges > 100, "{merges}");
}

/// As much as is planned to go from a page to its left neighbours' page fits there.
#[test]
fn pages_are_filled_from_their_neighbours_up_to_the_room_there_is() {
    let mut filled = 0;
    for seed in 0..3000 {
        let rng = &mut Rng::with_seed(seed);
        let sizes = Sizes::random(rng);
        let mut fences: Vec<Vec<u8>> = (0..4).map(|_| random_key(rng, sizes)).collect();
        fences.sort();
        fences.dedup();
        if fences.len() < 3 {
            continue;
        }
        let models: Vec<Model> = fences
            .windows(2)
            .map(|fence| {
                let first = PageId(rng.u32(1..));
                let mut m = Model::new(fence[0].clone(), Some(fence[1].clone()), first);
                for _ in 0..rng.usize(0..60) {
                    let key = m.covered_key(rng, sizes);
                    if !m.children.contains_key(&key) && node::fits_child(&m.page, key.len()) {
                        m.put_splitting(&key, PageId(rng.u32(1..)));
                    }
                }
                m
            })
            .collect();
        let pages: Vec<&weir_page::Page> = models.iter().map(|m| &*m.page).collect();
        let last = pages[pages.len() - 1];
        let all = weir_page::PAGE_SIZE - weir_page::page::BODY;
        let room = all - rng.usize(0..8000);
        let Some((end, upper)) = what_fits(&pages, room) else { continue };
        filled += 1;
        let page = node::together(&pages, end, upper.as_deref());
        let taken = all - node::free_bytes(&page);
        assert!(taken <= room, "{taken} bytes of {room}");
        let left = node::count(last) - end;
        let children: Vec<_> = models.iter().flat_map(|m| m.children.clone()).collect();
        let children = children[..children.len() - left].iter().cloned().collect();
        Model { page, children, lower: fences[0].clone(), upper }.check(rng, sizes);
    }
    assert!(filled > 300, "{filled}");
}
