//! A leaf under random operations against a `BTreeMap`.

mod common;

use common::{Sizes, State, random_key, random_state, what_fits};
use fastrand::Rng;
use std::collections::BTreeMap;
use weir_page::node::{self, Builder, MAX_INLINE, MAX_KEY};
use weir_page::{Entry, Flags, Kind, Page, PageId, TreeId, TxnId};

/// A leaf and what should be in it.
struct Model {
    page: Box<Page>,
    entries: BTreeMap<Vec<u8>, State>,
    lower: Vec<u8>,
    upper: Option<Vec<u8>>,
}

impl Model {
    fn new(lower: Vec<u8>, upper: Option<Vec<u8>>) -> Model {
        let page = Builder::new(PageId(9), TreeId(3), 0, &lower, upper.as_deref()).finish();
        Model { page, entries: BTreeMap::new(), lower, upper }
    }

    /// The page `split.at..` of a split, as its right half.
    fn right_half(&self, split: &node::Split) -> Model {
        let upper = self.upper.clone();
        let mut b = Builder::new(PageId(10), TreeId(3), 0, &split.separator, upper.as_deref());
        node::copy_slots(&self.page, split.at..node::count(&self.page), &mut b);
        let entries = self.entries.range(split.separator.clone()..);
        let entries = entries.map(|(k, s)| (k.clone(), s.clone())).collect();
        Model { page: b.finish(), entries, lower: split.separator.clone(), upper }
    }

    fn truncate(&mut self, split: &node::Split) {
        node::truncate(&mut self.page, split.at, &split.separator);
        self.entries = self.entries.range(..split.separator.clone()).map(own).collect();
        self.upper = Some(split.separator.clone());
    }

    fn check(&self) {
        node::validate(&self.page).expect("a page stays well formed");
        let p = &*self.page;
        assert_eq!(node::lower(p), self.lower);
        assert_eq!(node::upper(p), self.upper.as_deref());
        assert_eq!((node::tree(p), p.level()), (TreeId(3), 0));
        assert_eq!(node::count(p), self.entries.len());
        for (slot, (key, state)) in self.entries.iter().enumerate() {
            assert_eq!(&node::key(p, slot), key);
            assert_eq!(State::of(node::entry(p, slot)), *state);
            assert_eq!(node::search(p, key), (slot, true));
        }
    }

    /// Puts an entry; false if it doesn't fit.
    fn put(&mut self, key: &[u8], state: &State) -> bool {
        let p = &mut *self.page;
        let (slot, exists) = node::search(p, key);
        assert_eq!(slot, self.entries.range(..key.to_vec()).count());
        assert_eq!(exists, self.entries.contains_key(key));
        let (len, versioned) = (state.value.len(), state.version.is_some());
        if exists {
            if !node::fits_replace(p, slot, len, versioned) {
                return false;
            }
            node::replace(p, slot, &state.entry());
        } else {
            if !node::fits_insert(p, key.len(), len, versioned) {
                return false;
            }
            node::insert(p, slot, key, &state.entry());
        }
        self.entries.insert(key.to_vec(), state.clone());
        true
    }

    /// Puts an entry, splitting as often as it takes; returns the number of splits.
    fn put_splitting(&mut self, rng: &mut Rng, key: &[u8], state: &State) -> usize {
        let mut splits = 0;
        while !self.put(key, state) {
            let (slot, _) = node::search(&self.page, key);
            let split = node::plan_leaf_split(&self.page, slot, key);
            let before = node::count(&self.page);
            let right = self.right_half(&split);
            self.truncate(&split);
            self.check();
            right.check();
            assert_eq!(before, node::count(&self.page) + node::count(&right.page));
            let goes_right = split.separator.as_slice() <= key;
            if goes_right {
                *self = right;
            }
            assert!(node::covers(&self.page, key));
            assert!(node::count(&self.page) < before, "every split makes the page smaller");
            splits += 1;
            // Compaction and versions must not matter afterwards.
            if rng.u8(0..8) == 0 {
                node::compact(&mut self.page);
            }
        }
        splits
    }

    /// Builds the page anew, which finds gaps for its heads.
    fn rebuild(&mut self) {
        let upper = self.upper.as_deref();
        let mut b = Builder::new(PageId(9), TreeId(3), 0, &self.lower, upper);
        node::copy_slots(&self.page, 0..node::count(&self.page), &mut b);
        self.page = b.finish();
    }

    fn freeze(&mut self, below: TxnId) {
        let free = node::free_bytes(&self.page);
        let gain = node::freezable(&self.page, below);
        node::freeze(&mut self.page, below);
        assert_eq!(node::free_bytes(&self.page), free + gain);
        let old = |s: &State| s.version.is_some_and(|v| v.txn < below);
        let stays = |s: &State| !s.flags.deleted || s.flags.hides;
        self.entries.retain(|_, s| !old(s) || stays(s) || s.flags.overflow);
        for s in self.entries.values_mut().filter(|s| old(s) && stays(s)) {
            s.version = None;
        }
    }
}

fn own(e: (&Vec<u8>, &State)) -> (Vec<u8>, State) {
    (e.0.clone(), e.1.clone())
}

fn random_fences(rng: &mut Rng, sizes: Sizes) -> (Vec<u8>, Option<Vec<u8>>) {
    match rng.u8(0..3) {
        0 => (Vec::new(), None),
        1 => (random_key(rng, sizes), None),
        _ => {
            let (a, b) = (random_key(rng, sizes), random_key(rng, sizes));
            if a < b { (a, Some(b)) } else { (b, None) }
        }
    }
}

/// A key that the page covers: a random one, a neighbour's with zeros, or the fence itself.
fn random_covered_key(rng: &mut Rng, m: &Model, sizes: Sizes) -> Vec<u8> {
    for _ in 0..20 {
        let mut key = match rng.u8(0..6) {
            0 if !m.entries.is_empty() => {
                let n = rng.usize(0..m.entries.len());
                let mut key = m.entries.keys().nth(n).expect("n is below the length").clone();
                if rng.bool() {
                    key.push(0);
                } else if key.last() == Some(&0) {
                    key.pop();
                }
                key
            }
            1 => m.lower.clone(),
            2 => [&m.lower[..], &random_key(rng, Sizes::Tiny)].concat(),
            _ => random_key(rng, sizes),
        };
        key.truncate(MAX_KEY);
        if node::covers(&m.page, &key) {
            return key;
        }
    }
    m.lower.clone()
}

#[test]
fn random_operations() {
    for seed in 0..400 {
        let rng = &mut Rng::with_seed(seed);
        let sizes = Sizes::random(rng);
        let (lower, upper) = random_fences(rng, sizes);
        let mut m = Model::new(lower, upper);
        m.check();
        for _ in 0..120 {
            step(rng, &mut m, sizes);
            m.check();
        }
    }
}

fn step(rng: &mut Rng, m: &mut Model, sizes: Sizes) {
    match rng.u8(0..21) {
        0..12 => {
            let key = random_covered_key(rng, m, sizes);
            let state = random_state(rng, key.len(), sizes);
            if !m.put(&key, &state) && rng.u8(0..4) == 0 {
                m.put_splitting(rng, &key, &state);
            }
        }
        12..16 if !m.entries.is_empty() => {
            let slot = rng.usize(0..m.entries.len());
            let key = node::key(&m.page, slot);
            node::remove(&mut m.page, slot);
            m.entries.remove(&key);
        }
        16 => m.freeze(TxnId(rng.u64(0..110))),
        17 => node::compact(&mut m.page),
        18 => {
            let hole = m.page.hole();
            m.page.0[hole].fill(0);
        }
        19 => m.rebuild(),
        _ => {
            let mut body = Vec::new();
            m.page.append_body(&mut body);
            let id = m.page.id();
            m.page.0.fill(0xaa);
            m.page.set_body(id, &body);
        }
    }
}

#[test]
fn whatever_is_within_the_limits_fits_after_a_few_splits() {
    let mut most = 0;
    for seed in 0..600 {
        let rng = &mut Rng::with_seed(seed);
        let sizes = Sizes::random(rng);
        let (lower, upper) = random_fences(rng, sizes);
        let mut m = Model::new(lower, upper);
        let ascending = rng.u8(0..3) == 0;
        let mut last = m.lower.clone();
        for i in 0..150u32 {
            let mut key = random_covered_key(rng, &m, sizes);
            if ascending && last.len() + 4 < MAX_KEY {
                // Goes on right behind the last one, so that runs arise in the middle as well.
                let next = [&last[..last.len().min(MAX_KEY - 8)], &i.to_be_bytes()[..]].concat();
                if rng.u8(0..10) != 0 && node::covers(&m.page, &next) && next > last {
                    key = next;
                }
            }
            let state = random_state(rng, key.len(), sizes);
            most = most.max(m.put_splitting(rng, &key, &state));
            m.check();
            if i % 16 == 0 {
                last = key;
            }
        }
    }
    assert!(most <= 4, "{most} splits for one entry");
}

#[test]
fn a_leaf_of_one_entry_is_split_beside_it() {
    let mut m = Model::new(Vec::new(), None);
    let state = State { flags: Default::default(), version: None, value: vec![1; 10] };
    assert!(m.put(b"mm", &state));
    for (slot, key, at) in [(0, &b"ma"[..], 0), (1, b"mz", 1), (1, b"mm\0", 1), (0, b"", 0)] {
        let split = node::plan_leaf_split(&m.page, slot, key);
        assert_eq!(split.at, at);
        assert_eq!(split.separator.as_slice() <= b"mm", at == 0, "the entry's side");
        assert_eq!(split.separator.as_slice() <= key, at == 1, "the new key's side");
        m.right_half(&split).check();
    }
}

#[test]
fn a_long_separator_of_an_ascending_load_does_not_overflow_the_left_page() {
    let mut m = Model::new(Vec::new(), None);
    let rng = &mut Rng::with_seed(1);
    for i in 0..40u32 {
        let mut key = vec![b'k'; 3000];
        key.extend_from_slice(&i.to_be_bytes());
        let state = State { flags: Default::default(), version: None, value: vec![0; 200] };
        assert!(m.put_splitting(rng, &key, &state) <= 3);
        m.check();
    }
}

#[test]
fn ascending_loads_leave_full_pages() {
    let mut m = Model::new(Vec::new(), None);
    for i in 0..5000u32 {
        let key = [b"table", &i.to_be_bytes()[..]].concat();
        let state = State { flags: Default::default(), version: None, value: vec![0; 100] };
        if !m.put(&key, &state) {
            let (slot, _) = node::search(&m.page, &key);
            let split = node::plan_leaf_split(&m.page, slot, &key);
            assert_eq!(split.at, node::count(&m.page));
            m = m.right_half(&split);
            assert!(m.put(&key, &state));
        }
    }
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
        let mut left = Model::new(a.clone(), Some(b.clone()));
        let mut right = Model::new(b.clone(), c.clone());
        for m in [&mut left, &mut right] {
            for _ in 0..rng.usize(0..40) {
                let key = random_covered_key(rng, m, sizes);
                m.put(&key, &random_state(rng, key.len(), sizes));
            }
        }
        if !node::can_merge(&left.page, &right.page) {
            continue;
        }
        merges += 1;
        let page = node::merged(&left.page, &right.page);
        let entries = left.entries.iter().chain(&right.entries).map(own).collect();
        let m = Model { page, entries, lower: a, upper: c };
        m.check();
        assert!(node::free_bytes(&m.page) >= weir_page::PAGE_SIZE / 5);
        assert_eq!(m.page.id(), left.page.id());
    }
    assert!(merges > 100, "{merges}");
}

/// As much as is planned to go from a page to its left neighbours' page fits there, and nothing
/// more would.
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
                let mut m = Model::new(fence[0].clone(), Some(fence[1].clone()));
                for _ in 0..rng.usize(0..60) {
                    let key = random_covered_key(rng, &m, sizes);
                    m.put(&key, &random_state(rng, key.len(), sizes));
                }
                m
            })
            .collect();
        let pages: Vec<&weir_page::Page> = models.iter().map(|m| &*m.page).collect();
        let last = pages[pages.len() - 1];
        let all = || models.iter().flat_map(|m| m.entries.iter().map(own));
        let room = weir_page::PAGE_SIZE - weir_page::page::BODY - rng.usize(0..8000);
        let Some((end, upper)) = what_fits(&pages, room) else { continue };
        filled += 1;
        if end < node::count(last) {
            let fence = upper.clone().unwrap();
            assert!(node::key(last, end - 1) < fence && fence <= node::key(last, end));
        }
        let page = node::together(&pages, end, upper.as_deref());
        let taken = weir_page::PAGE_SIZE - weir_page::page::BODY - node::free_bytes(&page);
        assert!(taken <= room, "{taken} bytes of {room}");
        let left = node::count(last) - end;
        let entries = all().take(all().count() - left).collect();
        Model { page, entries, lower: fences[0].clone(), upper }.check();
    }
    assert!(filled > 300, "{filled}");
}

#[test]
fn keys_that_differ_by_trailing_zeros_are_told_apart() {
    let mut m = Model::new(Vec::new(), None);
    for zeros in [3, 0, 5, 1, 4, 2, 9, 8] {
        let value = vec![zeros as u8];
        let state = State { flags: Default::default(), version: None, value };
        assert!(m.put(&vec![0; zeros], &state));
        assert!(m.put(&[&b"ab"[..], &vec![0; zeros]].concat(), &state));
        m.check();
    }
    assert_eq!(node::search(&m.page, &[0; 6]), (6, false));
}

#[test]
fn a_leaf_whose_bounds_were_checked_can_be_read_whatever_its_bytes() {
    for seed in 0..3000 {
        let rng = &mut Rng::with_seed(seed);
        let sizes = Sizes::Usual;
        let mut m = Model::new(Vec::new(), None);
        for _ in 0..30 {
            let key = random_key(rng, sizes);
            m.put(&key, &random_state(rng, key.len(), sizes));
        }
        let p = &mut m.page;
        for _ in 0..rng.usize(1..4) {
            let near = if rng.bool() { 32..64 } else { 32..weir_page::PAGE_SIZE };
            p.0[rng.usize(near)] = rng.u8(..);
        }
        if seed % 100 == 0 {
            p.0.fill_with(|| rng.u8(..));
            p.0[32] = 1;
        }
        if p.check_bounds().is_ok() && p.kind() == Kind::Leaf {
            for slot in 0..node::count(p) {
                let (key, Entry { .. }) = (node::key(p, slot), node::entry(p, slot));
                if node::covers(p, &key) {
                    node::search(p, &key);
                }
            }
            let _ = node::validate(p);
        } else {
            node::validate(p).unwrap_err();
        }
    }
}

#[test]
fn keys_and_values_that_are_too_long_are_found() {
    let found = |lower: &[u8], key_len: usize, value_len: usize| {
        let mut b = Builder::new(PageId(1), TreeId(1), 0, lower, None);
        let value = &vec![0; value_len][..];
        b.push(&vec![b'k'; key_len], &Entry { flags: Flags::default(), version: None, value });
        node::validate(&b.finish()).err().unwrap_or_default()
    };
    assert_eq!(found(&[b'a'; MAX_KEY], MAX_KEY, MAX_INLINE - MAX_KEY), "");
    assert_eq!(found(b"", 100, MAX_INLINE - 100), "");
    assert!(found(b"", MAX_KEY + 1, 0).ends_with("a key of 3533 bytes, and a value of 0"));
    assert!(found(b"", 100, MAX_INLINE - 99).ends_with("a key of 100 bytes, and a value of 3801"));
    assert!(found(&[b'a'; MAX_KEY + 1], 1, 0).starts_with("a fence is longer"));
}

/// Length of both gaps, as the header says.
fn gap_bytes(p: &Page) -> u8 {
    (p.0[58] >> 4) + (p.0[59] >> 4)
}

/// A leaf of three prices on two dates, whose keys agree in upper bytes.
fn leaf_with_gaps() -> Model {
    let mut m = Model::new(b"p".to_vec(), Some(b"p\xff\xff".to_vec()));
    let state = State { flags: Default::default(), version: None, value: vec![7] };
    for n in 0..60u8 {
        let key = [b'p', 3 + n % 3, 0x59, 0x68, 0x2f, n & 2, 0, n & 1, n];
        assert!(m.put(&key, &state));
    }
    m.rebuild();
    m.check();
    m
}

#[test]
fn gaps_are_golden() {
    let m = leaf_with_gaps();
    assert_eq!(m.page.0[58..64], [0x31, 0x15, 0x00, 0x2f, 0x68, 0x59]);
    // Price, date, and of the customer all but its highest byte.
    assert_eq!(m.page.u32(64), 0x0300_0000);
    assert_eq!(m.page.u32(64 + 8 * 59), 0x0502_013b);
}

#[test]
fn a_key_that_disagrees_with_the_gaps_finds_its_place() {
    let mut keys: Vec<Vec<u8>> = Vec::new();
    for at in 1..9 {
        for byte in [0, 1, 3, 4, 0x58, 0x5a, 0x67, 0x69, 0x2e, 0x30, 0xff] {
            for price in 2..7 {
                let mut key = vec![b'p', price, 0x59, 0x68, 0x2f, 2, 0, 1, 8];
                key[at] = byte;
                keys.extend((1..=key.len()).map(|len| key[..len].to_vec()));
            }
        }
    }
    let state = State { flags: Default::default(), version: None, value: vec![7] };
    for key in keys {
        let mut m = leaf_with_gaps();
        let there = m.entries.contains_key(&key);
        let slot = m.entries.range(key.clone()..).next().map_or(60, |(after, _)| {
            m.entries.keys().position(|k| k == after).expect("it is there")
        });
        assert_eq!(node::search(&m.page, &key), (slot, there), "{key:02x?}");
        assert!(m.put(&key, &state));
        m.check();
    }
}

#[test]
fn gaps_shrink_when_a_key_disagrees() {
    let mut m = leaf_with_gaps();
    let state = State { flags: Default::default(), version: None, value: vec![7] };
    for (key, gap_after) in [
        (&[b'p', 3, 0x59, 0x68, 0x2f, 2, 0, 1, 99][..], 4),
        (&[b'p', 3, 0x59, 0x68, 0x30, 2, 0, 1, 99][..], 3),
        (&[b'p', 3, 0x59, 0x67][..], 1),
        (&[b'p', 9, 0x80, 0, 0, 0, 0x80, 0x80], 0),
    ] {
        assert!(m.put(key, &state));
        m.check();
        assert_eq!(gap_bytes(&m.page), gap_after, "{key:02x?}");
    }
}

#[test]
fn wrong_gaps_are_found() {
    for at in 58..64 {
        for bit in 0..8 {
            let mut m = leaf_with_gaps();
            m.page.0[at] ^= 1 << bit;
            assert!(node::validate(&m.page).is_err(), "bit {bit} of byte {at}");
        }
    }
}

#[test]
fn searches_among_equal_heads_find_the_right_slot() {
    for seed in 0..300 {
        let rng = &mut Rng::with_seed(seed);
        // The fewer bytes there are, the more heads and tails are the same.
        let alphabet: &[u8] = [&[0, 0xff][..], &[0xff], &[0, 1, 0xfe, 0xff]][rng.usize(0..3)];
        let common = vec![0xff; rng.usize(0..20)];
        let key = |rng: &mut Rng| {
            let rest = (0..rng.usize(0..16)).map(|_| alphabet[rng.usize(0..alphabet.len())]);
            common.iter().copied().chain(rest).collect::<Vec<u8>>()
        };
        let mut m = Model::new(Vec::new(), None);
        for _ in 0..rng.usize(0..250) {
            let state = State { flags: Default::default(), version: None, value: vec![] };
            let state = if rng.bool() { state } else { random_state(rng, 0, Sizes::Tiny) };
            let key = key(rng);
            m.put(&key, &state);
        }
        for _ in 0..200 {
            let mut key = key(rng);
            key.drain(..rng.usize(0..=key.len().min(2)));
            let slot = m.entries.range(..key.clone()).count();
            assert_eq!(node::search(&m.page, &key), (slot, m.entries.contains_key(&key)));
        }
    }
}
