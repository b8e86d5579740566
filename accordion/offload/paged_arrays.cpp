// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/offload/paged_arrays.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace accordion {
namespace {

OffloadTarget fitted(const OffloadTarget& target, std::string_view caller,
                     const std::vector<std::int64_t>& array_bytes) {
  check_target(target, caller);
  return array_bytes.empty() ? target : target.fitted_to(array_bytes);
}

}  // namespace

PagedArrays::PagedArrays(const OffloadTarget& target, std::string_view caller,
                         const std::vector<std::int64_t>& array_bytes)
    : target_(fitted(target, caller, array_bytes)) {
  std::vector<std::int64_t> all;
  for (const std::int64_t bytes : array_bytes) {
    const std::vector<std::int64_t> blocks = cut(bytes);
    note(bytes, static_cast<int>(all.size()));
    all.insert(all.end(), blocks.begin(), blocks.end());
  }
  blocks_ = std::make_unique<StagedBlocks>(
      target_.make_store(all), all,
      target_.buffers_for(static_cast<std::int64_t>(all.size())));
}

std::vector<std::int64_t> PagedArrays::cut(std::int64_t bytes) const {
  std::vector<std::int64_t> blocks;
  for (std::int64_t begin = 0; begin < bytes; begin += block_bytes()) {
    blocks.push_back(std::min(block_bytes(), bytes - begin));
  }
  return blocks;
}

void PagedArrays::note(std::int64_t bytes, int first) {
  arrays_.push_back({.bytes = bytes,
                     .first = first,
                     .count = static_cast<int>(cut(bytes).size())});
}

int PagedArrays::add(std::int64_t bytes) {
  const int first = blocks_->num_blocks();
  const std::vector<std::int64_t> blocks = cut(bytes);
  blocks_->grow_buffers(
      target_.buffers_for(first + static_cast<std::int64_t>(blocks.size())),
      blocks.empty() ? 0 : blocks.front());
  blocks_->add_blocks(blocks);
  note(bytes, first);
  return num_arrays() - 1;
}

bool PagedArrays::prefetch(int array, int most) {
  const int first = first_block(array);
  for (int block = first; block < first + num_blocks(array); ++block) {
    if (blocks_->num_promised() >= most || !blocks_->prefetch(block)) {
      return false;
    }
  }
  return true;
}

void PagedArrays::read(int array, std::span<std::byte> to) {
  for (int i = 0; i < num_blocks(array); ++i) {
    const int block = first_block(array) + i;
    HeldBlock held(*blocks_, block, blocks_->acquire(block));
    std::ranges::copy(held.memory(), to.begin() + i * block_bytes());
    held.release(Use::Unchanged);
  }
}

void PagedArrays::write(int array, std::span<const std::byte> from) {
  for (int i = 0; i < num_blocks(array); ++i) {
    const int block = first_block(array) + i;
    HeldBlock held(*blocks_, block, blocks_->overwrite(block));
    std::ranges::copy(from.subspan(static_cast<std::size_t>(i * block_bytes()),
                                   held.memory().size()),
                      held.memory().begin());
    held.release(Use::Changed);
  }
}

std::byte* PagedArrays::map(int array) {
  Array& mapped = arrays_.at(static_cast<std::size_t>(array));
  if (mapped.count > 0 && !mapped.mapped) {
    mapped.mapped = blocks_->map(mapped.first, mapped.first + mapped.count);
  }
  return mapped.mapped.get();
}

void PagedArrays::forget(int array) {
  const int first = first_block(array);
  blocks_->forget(first, first + num_blocks(array));
}

void PagedArrays::forget() {
  blocks_->forget(0, blocks_->num_blocks());
}

void PagedArrays::page_out() {
  for (int array = 0; array < num_arrays(); ++array) {
    page_out(array);
  }
}

void PagedArrays::page_out(int array) {
  const Array& mapped = arrays_.at(static_cast<std::size_t>(array));
  if (mapped.mapped) {
    blocks_->store().page_out(mapped.first, mapped.first + mapped.count,
                              mapped.mapped.get());
  }
}

PagedArrays::BufferedUse::BufferedUse(PagedArrays& arrays) : arrays_(&arrays) {
  if (!arrays.in_use()) {
    arrays.forget();
    arrays.page_out();
  }
  ++arrays.uses_;
}

PagedArrays::BufferedUse::~BufferedUse() {
  try {
    close();
  } catch (const OffloadError&) {
    // Whoever reads the block next is told.
  }
}

void PagedArrays::BufferedUse::close() {
  if (PagedArrays* const arrays = std::exchange(arrays_, nullptr)) {
    if (--arrays->uses_ == 0) {
      arrays->blocks_->flush();
    }
  }
}

std::span<std::byte> BlockOrder::acquire(StagedBlocks& blocks, int block) {
  if (last_ >= 0) {
    after(last_) = block;
  }
  last_ = block;
  const std::span<std::byte> memory = blocks.acquire(block);
  int ahead = after(block);
  for (int i = 0; i < blocks.num_buffers() && ahead >= 0 && ahead != block;
       ++i) {
    if (!blocks.prefetch(ahead)) {
      break;
    }
    ahead = after(ahead);
  }
  return memory;
}

int& BlockOrder::after(int block) {
  const auto i = static_cast<std::size_t>(block);
  if (i >= next_.size()) {
    next_.resize(i + 1, -1);
  }
  return next_[i];
}

HeldBlock::HeldBlock(HeldBlock&& other) noexcept
    : blocks_(std::exchange(other.blocks_, nullptr)),
      block_(other.block_),
      memory_(other.memory_) {}

HeldBlock::~HeldBlock() {
  try {
    release(Use::Changed);
  } catch (const OffloadError&) {
    // Another error is on its way.
  }
}

void HeldBlock::release(Use use) {
  if (StagedBlocks* const blocks = std::exchange(blocks_, nullptr)) {
    blocks->release(block_, use);
  }
}

}  // namespace accordion
