// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

// What memory allows: loops that read and write as a collective does, and do
// nothing else. In the manner of STREAM, bytes are counted once each.
namespace accordion::benchmarks {

/// to[i] = from[i]; the loop of STREAM's "copy".
void stream_copy(float* to, const float* from, std::int64_t numel);

/// to[i] = a[i] + b[i]; the loop of STREAM's "add".
void stream_add(float* to, const float* a, const float* b, std::int64_t numel);

/// Adds `from` to each of three arrays, in one pass: what AdamW reads and
/// writes in fp32.
void stream_update(float* a, float* b, float* c, const float* from,
                   std::int64_t numel);

/// The same as the first two, past the caches: the lines of `to` are not read
/// first.
void stream_copy_past_cache(float* to, const float* from, std::int64_t numel);
void stream_add_past_cache(float* to, const float* a, const float* b,
                           std::int64_t numel);

}  // namespace accordion::benchmarks
