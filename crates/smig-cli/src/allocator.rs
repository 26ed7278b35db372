//! The program's allocator: mimalloc. A request takes about twenty small allocations, for which the C library's is slower.
//!
//! The crate `mimalloc` states an alignment with every allocation. mimalloc then checks the block that it would return, and
//! for most sizes above 1 KiB allocates a larger block to align it itself. Nearly all allocations need the alignment of a
//! pointer at most, which every block has: these state none.

use core::alloc::{GlobalAlloc, Layout};

use libmimalloc_sys::{
    mi_free, mi_malloc, mi_malloc_aligned, mi_realloc, mi_realloc_aligned, mi_zalloc,
    mi_zalloc_aligned,
};

/// mimalloc, which is told only alignments that its blocks may lack.
pub(crate) struct Mimalloc;

/// Returns whether every block has this layout's alignment: sizes of blocks are multiples of a pointer's size, and the
/// first block of a page is aligned to 16 bytes.
const fn is_naturally_aligned(layout: Layout) -> bool {
    layout.align() <= align_of::<usize>()
}

// SAFETY: each block comes from mimalloc, with the alignment of its layout. mi_free and mi_realloc accept every block of
// mimalloc, whether an alignment was stated or not.
#[expect(
    unsafe_code,
    reason = "every call is forwarded to mimalloc, with an alignment if it needs one"
)]
unsafe impl GlobalAlloc for Mimalloc {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if is_naturally_aligned(layout) {
            return unsafe { mi_malloc(layout.size()) }.cast();
        }
        unsafe { mi_malloc_aligned(layout.size(), layout.align()) }.cast()
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if is_naturally_aligned(layout) {
            return unsafe { mi_zalloc(layout.size()) }.cast();
        }
        unsafe { mi_zalloc_aligned(layout.size(), layout.align()) }.cast()
    }

    unsafe fn dealloc(&self, block: *mut u8, _: Layout) {
        unsafe { mi_free(block.cast()) };
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        if is_naturally_aligned(layout) {
            return unsafe { mi_realloc(block.cast(), new_size) }.cast();
        }
        unsafe { mi_realloc_aligned(block.cast(), new_size, layout.align()) }.cast()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX_SIZE: usize = 40_000;

    /// Returns layouts of all small sizes and of some others.
    fn layouts() -> impl Iterator<Item = Layout> {
        let sizes = || (1..=2_048).chain((2_049..MAX_SIZE).step_by(997));
        let aligns = [1, 2, 4, 8, 16, 32, 64, 4_096];
        let layout = |size, align| Layout::from_size_align(size, align).unwrap();
        aligns.into_iter().flat_map(move |align| sizes().map(move |size| layout(size, align)))
    }

    #[test]
    #[expect(unsafe_code, reason = "an allocator's methods are unsafe")]
    fn blocks_are_aligned_and_keep_their_bytes() {
        for layout in layouts() {
            let (size, align) = (layout.size(), layout.align());
            unsafe {
                // Two blocks each: the second is not the first of its page.
                let blocks = [Mimalloc.alloc(layout), Mimalloc.alloc_zeroed(layout)];
                assert!(blocks.iter().all(|block| block.addr() % align == 0), "{layout:?}");
                let bytes = |block: *mut u8| std::slice::from_raw_parts_mut(block, size);
                assert!(bytes(blocks[1]).iter().all(|byte| *byte == 0), "{layout:?}");
                for block in blocks {
                    bytes(block).fill(7);
                    let moved = Mimalloc.realloc(block, layout, 2 * size + 1);
                    assert_eq!(moved.addr() % align, 0, "{layout:?}");
                    assert!(bytes(moved).iter().all(|byte| *byte == 7), "{layout:?}");
                    let moved_layout = Layout::from_size_align(2 * size + 1, align).unwrap();
                    Mimalloc.dealloc(moved, moved_layout);
                }
            }
        }
    }
}
