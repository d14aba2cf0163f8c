//! One shared library: all of llguidance's C API, and under `llgx_` what that API lacks.
//!
//! Structs begin with `struct_size`, which the caller sets to the size it was compiled with: no
//! more than that is written, so that fields can be added at the end.

use std::ffi::c_char;
use std::mem::size_of;

pub use llguidance::ffi::*;

/// Grows when an export changes its meaning; new exports and fields leave it alone.
const ABI: u32 = 1;

#[no_mangle]
pub extern "C" fn llgx_abi() -> u32 {
    ABI
}

/// Work done for the matcher's last mask. All zero where the mask was a forced token's.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct LlgxStepStats {
    pub struct_size: u64,
    pub trie_nodes_walked: u64,
    /// In llguidance's units of lexer fuel.
    pub lexer_cost: u64,
    pub all_items: u64,
    pub rows: u64,
    pub cached_rows: u64,
    pub slices_applied: u64,
    /// llguidance's own clock, and so no counter.
    pub compute_time_us: u64,
}

/// Writes the counters of the last mask; returns 0, or -1 where the matcher is in an error state.
///
/// # Safety
/// `stats` must point to `stats->struct_size` bytes.
#[no_mangle]
pub unsafe extern "C" fn llgx_matcher_step_stats(
    matcher: &LlgMatcher,
    stats: *mut LlgxStepStats,
) -> i32 {
    let Ok(step) = matcher.matcher.last_step_stats() else {
        return -1;
    };
    let found = LlgxStepStats {
        struct_size: 0,
        trie_nodes_walked: step.trie_nodes_walked as u64,
        lexer_cost: step.lexer_cost,
        all_items: step.all_items as u64,
        rows: step.rows as u64,
        cached_rows: step.cached_rows as u64,
        slices_applied: step.slices_applied as u64,
        compute_time_us: step.compute_time_us,
    };
    unsafe { write_known(stats, found, (*stats).struct_size) };
    0
}

/// Drops the mask that the matcher keeps for its current state, so that the next one is computed.
#[no_mangle]
pub extern "C" fn llgx_matcher_drop_mask_cache(matcher: &mut LlgMatcher) {
    matcher.matcher.invalidate_bias_cache();
}

#[no_mangle]
pub extern "C" fn llgx_matcher_num_captures(matcher: &LlgMatcher) -> usize {
    matcher.matcher.captures().len()
}

/// Gives out capture `index`, in the order they were made; pointers hold until the next call that
/// changes the matcher. Returns 0, or -1 where there is no such capture.
#[no_mangle]
pub extern "C" fn llgx_matcher_capture(
    matcher: &LlgMatcher,
    index: usize,
    name: &mut *const c_char,
    name_len: &mut usize,
    bytes: &mut *const u8,
    bytes_len: &mut usize,
) -> i32 {
    let Some((key, value)) = matcher.matcher.captures().get(index) else {
        return -1;
    };
    (*name, *name_len) = (key.as_ptr().cast(), key.len());
    (*bytes, *bytes_len) = (value.as_ptr(), value.len());
    0
}

/// Work done by the fallback since the matcher was created.
#[cfg(feature = "fallback")]
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct LlgxFallbackStats {
    pub struct_size: u64,
    pub recoveries: u64,
    pub reread_bytes: u64,
    pub promotions: u64,
    pub snapshots: u64,
    pub synced_bytes: u64,
}

/// Writes the fallback's counters; returns 0, or -1 where the grammar does not ask for it.
///
/// # Safety
/// `stats` must point to `stats->struct_size` bytes.
#[cfg(feature = "fallback")]
#[no_mangle]
pub unsafe extern "C" fn llgx_matcher_fallback_stats(
    matcher: &LlgMatcher,
    stats: *mut LlgxFallbackStats,
) -> i32 {
    let Some(work) = matcher.matcher.fallback_stats() else {
        return -1;
    };
    let found = LlgxFallbackStats {
        struct_size: 0,
        recoveries: work.recoveries as u64,
        reread_bytes: work.reread_bytes as u64,
        promotions: work.promotions as u64,
        snapshots: work.snapshots as u64,
        synced_bytes: work.synced_bytes as u64,
    };
    unsafe { write_known(stats, found, (*stats).struct_size) };
    0
}

/// Sets for one matcher, from here on, after how many bytes a fallback is kept in step rather than
/// read again. 64 unless set; `SIZE_MAX` reads again always. For measurements.
#[cfg(feature = "fallback")]
#[no_mangle]
pub extern "C" fn llgx_matcher_set_fallback_threshold(matcher: &mut LlgMatcher, bytes: usize) {
    let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
    matcher.matcher.set_fallback_threshold(bytes);
}

/// Writes the first `struct_size` bytes of `found`, and keeps the caller's `struct_size`.
unsafe fn write_known<T: Copy>(target: *mut T, found: T, struct_size: u64) {
    let head = size_of::<u64>();
    let size = size_of::<T>().min(struct_size as usize);
    if size > head {
        unsafe {
            let source = (&raw const found).cast::<u8>().add(head);
            target.cast::<u8>().add(head).copy_from(source, size - head);
        }
    }
}
