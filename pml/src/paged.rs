// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A table by index that costs what is used of it: entries come in pages, and a page comes with its first entry. Of a
//! thousand peers an idle process knows itself alone, whatever its number.

use core::ops::{Index, IndexMut};

/// Entries of a page.
const PAGE: usize = 16;

/// A table by index; an entry that nobody asked for is as `T::default()` would be, and is not there.
#[derive(Debug)]
pub(crate) struct Paged<T> {
    pages: Vec<Option<Box<[T; PAGE]>>>,
}

impl<T: Default> Paged<T> {
    /// An empty table; allocates nothing.
    pub(crate) fn new() -> Self {
        Paged { pages: Vec::new() }
    }

    // Hot: per message.
    /// The entry, if its page is there.
    #[inline]
    pub(crate) fn get(&self, index: usize) -> Option<&T> {
        let page = self.pages.get(index / PAGE)?.as_ref()?;
        Some(&page[index % PAGE])
    }

    /// The entry, with its page if need be.
    pub(crate) fn at(&mut self, index: usize) -> &mut T {
        if index / PAGE >= self.pages.len() {
            self.pages.resize_with(index / PAGE + 1, || None);
        }
        let page =
            self.pages[index / PAGE].get_or_insert_with(|| Box::new(core::array::from_fn(|_| T::default())));
        &mut page[index % PAGE]
    }

    /// The entries of all pages that are there.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.pages.iter().flatten().flat_map(|page| page.iter())
    }
}

const NOT_THERE: &str = "an entry that was made";

impl<T: Default> Index<usize> for Paged<T> {
    type Output = T;

    fn index(&self, index: usize) -> &T {
        self.get(index).expect(NOT_THERE)
    }
}

impl<T: Default> IndexMut<usize> for Paged<T> {
    fn index_mut(&mut self, index: usize) -> &mut T {
        let page = self.pages.get_mut(index / PAGE).and_then(Option::as_mut).expect(NOT_THERE);
        &mut page[index % PAGE]
    }
}

#[cfg(test)]
mod tests {
    use super::Paged;

    #[test]
    fn an_entry_costs_its_page_and_no_other() {
        let mut table: Paged<u32> = Paged::new();
        assert_eq!(table.get(900), None);
        *table.at(900) = 7;
        assert_eq!(table[900], 7);
        assert_eq!(table.get(901), Some(&0));
        assert_eq!(table.get(3), None);
        table[901] = 8;
        assert_eq!(table.iter().sum::<u32>(), 15);
        assert_eq!(table.iter().count(), 16);
    }
}
