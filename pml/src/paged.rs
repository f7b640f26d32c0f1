// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A table by index whose memory depends on its use: entries are in pages, and a page is made with its first entry. An idle process
//! in a job of thousands has one page.

/// Entries of a page.
const PAGE: usize = 16;

/// A table by index; an entry that was never asked for is as `T::default()` would be, and takes no memory.
#[derive(Debug)]
pub(crate) struct Paged<T> {
    pages: Vec<Option<Box<[T; PAGE]>>>,
}

impl<T> Default for Paged<T> {
    /// An empty table; allocates nothing.
    fn default() -> Self {
        Paged { pages: Vec::new() }
    }
}

impl<T: Default> Paged<T> {
    // Hot: per message.
    /// The entry, if its page is there.
    #[inline]
    pub(crate) fn get(&self, index: usize) -> Option<&T> {
        let page = self.pages.get(index / PAGE)?.as_ref()?;
        Some(&page[index % PAGE])
    }

    // Hot: per message.
    /// The entry, if its page is there.
    #[inline]
    pub(crate) fn get_mut(&mut self, index: usize) -> Option<&mut T> {
        let page = self.pages.get_mut(index / PAGE)?.as_mut()?;
        Some(&mut page[index % PAGE])
    }

    // Hot: per message.
    /// The entry, with its page if need be.
    #[inline]
    pub(crate) fn at(&mut self, index: usize) -> &mut T {
        if !matches!(self.pages.get(index / PAGE), Some(Some(_))) {
            return self.make(index);
        }
        let Some(page) = &mut self.pages[index / PAGE] else { unreachable!("asked above") };
        &mut page[index % PAGE]
    }

    #[cold]
    fn make(&mut self, index: usize) -> &mut T {
        if index / PAGE >= self.pages.len() {
            self.pages.resize_with(index / PAGE + 1, || None);
        }
        let page =
            self.pages[index / PAGE].get_or_insert_with(|| Box::new(core::array::from_fn(|_| T::default())));
        &mut page[index % PAGE]
    }

    /// The same, to change them.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.pages.iter_mut().flatten().flat_map(|page| page.iter_mut())
    }

    /// The entries of all pages that are there.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.pages.iter().flatten().flat_map(|page| page.iter())
    }
}

#[cfg(test)]
mod tests {
    use super::Paged;

    #[test]
    fn an_entry_costs_its_page_and_no_other() {
        let mut table: Paged<u32> = Paged::default();
        assert_eq!(table.get(900), None);
        *table.at(900) = 7;
        assert_eq!(table.get(900), Some(&7));
        assert_eq!(table.get(901), Some(&0));
        assert_eq!(table.get(3), None);
        *table.get_mut(901).unwrap() = 8;
        assert_eq!(table.iter().sum::<u32>(), 15);
        assert_eq!(table.iter().count(), 16);
    }
}
