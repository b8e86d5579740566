// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/checkpoint/weight_copy.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>

#include "accordion/checkpoint/block_checksum.h"
#include "accordion/checkpoint/float_conversion.h"
#include "accordion/checkpoint/positioned_file.h"
#include "accordion/checkpoint/safetensors_header.h"

namespace accordion {
namespace {

namespace fs = std::filesystem;

/// Elements that a thread takes at a time. As stored, in fp32 and as written
/// they have at most 15 MiB; the reader has a block of one.
constexpr std::int64_t kPieceElements = 3 << 19;

/// Some elements of a tensor, and their checksum when they were written.
struct Piece {
  const WeightPlan::Tensor* tensor;
  std::int64_t begin;
  std::int64_t end;
  std::uint64_t checksum = 0;

  [[nodiscard]] std::int64_t element_bytes() const {
    return detail::safetensors_element_bytes(tensor->entry.dtype);
  }
  [[nodiscard]] std::int64_t offset() const {
    return tensor->entry.begin + begin * element_bytes();
  }
};

std::vector<Piece> cut_pieces(const WeightPlan& plan) {
  std::vector<Piece> pieces;
  for (const WeightPlan::Tensor& tensor : plan.tensors) {
    const std::int64_t numel = tensor.entry.numel();
    for (std::int64_t begin = 0; begin < numel; begin += kPieceElements) {
      pieces.push_back(
          {&tensor, begin, std::min(begin + kPieceElements, numel)});
    }
  }
  return pieces;
}

/// Calls what `make_worker` gives each thread with one piece after another,
/// until all are done or one throws, which is thrown on.
void for_each_piece(
    std::vector<Piece>& pieces, int num_threads,
    const std::function<std::function<void(Piece&)>()>& make_worker) {
  std::atomic<std::size_t> next = 0;
  std::mutex mutex;
  std::exception_ptr error;
  const auto work = [&] {
    try {
      const auto worker = make_worker();
      for (std::size_t i = next++; i < pieces.size(); i = next++) {
        worker(pieces[i]);
      }
    } catch (...) {
      next = pieces.size();
      const std::lock_guard lock(mutex);
      error = error ? error : std::current_exception();
    }
  };
  {
    std::vector<std::jthread> threads;
    for (int i = 1; i < num_threads; ++i) {
      threads.emplace_back(work);
    }
    work();
  }
  if (error) {
    std::rethrow_exception(error);
  }
}

/// What a file cannot hold is not quietly made infinite.
void check_range(const Piece& piece, const std::vector<float>& from,
                 const std::byte* to) {
  if (piece.tensor->entry.dtype != "F16") {
    return;
  }
  for (std::size_t i = 0; i < from.size(); ++i) {
    std::uint16_t half = 0;
    std::memcpy(&half, to + i * sizeof(half), sizeof(half));
    if ((half & 0x7fffU) == 0x7c00U && std::isfinite(from[i])) {
      throw CheckpointError(fmt::format(
          "[export] tensor '{}', element {}: {} is too large for fp16. Export "
          "with --dtype bf16 or fp32.",
          piece.tensor->entry.name, piece.begin + static_cast<std::int64_t>(i),
          from[i]));
    }
  }
}

/// Reads, converts and writes pieces; one for each thread.
class PieceCopy {
 public:
  PieceCopy(const CheckpointReader& checkpoint,
            std::vector<PositionedFile>& files)
      : checkpoint_(checkpoint.another()), files_(files) {}

  void operator()(Piece& piece) {
    const TensorEntry& entry = piece.tensor->entry;
    const std::string name = "model/" + entry.name;
    const std::string& stored = checkpoint_.find(name)->dtype;
    const auto numel = static_cast<std::size_t>(piece.end - piece.begin);
    read_.resize(numel * static_cast<std::size_t>(
                             detail::safetensors_element_bytes(stored)));
    checkpoint_.read(name, piece.begin, read_);
    const auto& bytes =
        stored == entry.dtype ? read_ : converted(piece, stored, numel);
    piece.checksum = checksum_of(bytes);
    files_[piece.tensor->file].write(piece.offset(), bytes);
  }

 private:
  const std::vector<std::byte>& converted(const Piece& piece,
                                          const std::string& stored,
                                          std::size_t numel) {
    const std::string& dtype = piece.tensor->entry.dtype;
    fp32_.resize(numel);
    detail::conversion_to_fp32(stored)(read_.data(), fp32_.data(),
                                       piece.end - piece.begin);
    converted_.resize(numel * static_cast<std::size_t>(piece.element_bytes()));
    detail::conversion_from_fp32(dtype)(fp32_.data(), converted_.data(),
                                        piece.end - piece.begin);
    check_range(piece, fp32_, converted_.data());
    return converted_;
  }

  CheckpointReader checkpoint_;
  std::vector<PositionedFile>& files_;
  std::vector<std::byte> read_;
  std::vector<float> fp32_;
  std::vector<std::byte> converted_;
};

/// All before the first tensor, so that a disk that is too small is found out
/// at once.
std::vector<PositionedFile> create_files(const WeightPlan& plan,
                                         const fs::path& folder) {
  std::vector<PositionedFile> files;
  for (const PlannedFile& file : plan.files) {
    files.push_back(PositionedFile::create(folder / file.name, file.bytes));
    files.back().write(0, std::as_bytes(std::span(file.start)));
  }
  return files;
}

[[noreturn]] void fail_read_back(const fs::path& path,
                                 const std::string& what) {
  throw CheckpointError(fmt::format(
      "[export] '{}' was written, but {}. Check the disk, or export "
      "to another one.",
      path.string(), what));
}

void verify_headers(const WeightPlan& plan, const fs::path& folder) {
  for (std::size_t number = 0; number < plan.files.size(); ++number) {
    const SafetensorsFile file(folder / plan.files[number].name);
    std::size_t count = 0;
    for (const auto& [of_file, entry] : plan.tensors) {
      if (of_file != number) {
        continue;
      }
      ++count;
      const TensorEntry* const found = file.find(entry.name);
      if (found == nullptr || found->dtype != entry.dtype ||
          found->shape != entry.shape || found->begin != entry.begin ||
          found->end != entry.end) {
        fail_read_back(file.path(), fmt::format("its header does not describe "
                                                "tensor '{}' as it should",
                                                entry.name));
      }
    }
    if (count != file.tensors().size()) {
      fail_read_back(file.path(), "it holds further tensors");
    }
  }
}

void verify_pieces(std::vector<Piece>& pieces,
                   const std::vector<PositionedFile>& files, int num_threads) {
  for_each_piece(pieces, num_threads, [&] {
    return [&, read = std::vector<std::byte>()](Piece& piece) mutable {
      const PositionedFile& file = files[piece.tensor->file];
      read.resize(static_cast<std::size_t>((piece.end - piece.begin) *
                                           piece.element_bytes()));
      file.read(piece.offset(), read);
      if (checksum_of(read) != piece.checksum) {
        fail_read_back(
            file.path(),
            fmt::format("elements {} to {} of tensor '{}' read back "
                        "otherwise",
                        piece.begin, piece.end, piece.tensor->entry.name));
      }
    };
  });
}

}  // namespace

void copy_weights(const CheckpointReader& checkpoint, const WeightPlan& plan,
                  const fs::path& folder, int num_threads) {
  std::vector<PositionedFile> files = create_files(plan, folder);
  std::vector<Piece> pieces = cut_pieces(plan);
  for_each_piece(pieces, num_threads, [&] {
    const auto copy = std::make_shared<PieceCopy>(checkpoint, files);
    return [copy](Piece& piece) { (*copy)(piece); };
  });
  for (PositionedFile& file : files) {
    file.sync();
  }
  verify_headers(plan, folder);
  verify_pieces(pieces, files, num_threads);
}

}  // namespace accordion
