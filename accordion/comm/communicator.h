// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "accordion/comm/dtype.h"

namespace accordion {

/// A transport failed: a peer died, was late, or asked for another collective.
/// The message names operation, label and ranks.
class CommError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

enum class CommOp : std::uint8_t {
  AllGather,
  ReduceScatter,
  AllReduce,
  Broadcast,
  Barrier,
  Allocate,
};
inline constexpr int kNumCommOps = 6;
[[nodiscard]] std::string_view name(CommOp op);

/// Calls made and bytes moved, by operation.
///
/// Units  bytes: size of the full tensor in its wire dtype, summed over the
///        parts of each call; what one rank puts on a wire is (W - 1) / W of it
///        for an all-gather or reduce-scatter and twice that for an all-reduce.
struct CommCounters {
  std::array<std::int64_t, kNumCommOps> calls{};
  std::array<std::int64_t, kNumCommOps> bytes{};

  [[nodiscard]] std::int64_t calls_of(CommOp op) const {
    return calls[static_cast<std::size_t>(op)];
  }
  [[nodiscard]] std::int64_t bytes_of(CommOp op) const {
    return bytes[static_cast<std::size_t>(op)];
  }
};

/// Memory that a communicator's collectives read and write without a copy.
///
/// Two kinds, see Communicator::allocate_common and allocate_exported. Moves,
/// never copies; unmaps when destroyed. A buffer must not outlive the
/// communicator that made it, but for shares_common_memory().
class CommBuffer {
 public:
  virtual ~CommBuffer() = default;
  [[nodiscard]] std::byte* data() const { return data_; }
  [[nodiscard]] std::int64_t bytes() const { return bytes_; }

 protected:
  CommBuffer(std::byte* data, std::int64_t bytes)
      : data_(data), bytes_(bytes) {}
  std::byte* data_;
  std::int64_t bytes_;
};

/// One section of a grouped all-gather: rank r's piece lands in elements
/// [r * numel, (r + 1) * numel) of `full` on every rank.
struct GatherPart {
  /// [numel] of local_dtype. May be this rank's place in `full` where the
  /// dtypes are the same: it lies in place.
  const void* local;
  DType local_dtype;
  void* full;          ///< [world_size * numel] of full_dtype
  DType full_dtype;    ///< converted on the way, round to nearest even
  std::int64_t numel;  ///< elements per rank
};

/// One section of a grouped reduce-scatter (or all-reduce, where `local` is
/// [numel] and `full` is [numel] too).
///
/// The sum runs over ranks 0, 1, … in that order, in fp32 (fp64 for fp64)
/// whatever the wire dtype, so it is the same bit for bit in every run and on
/// every rank; over several hosts it is the sum of the hosts' sums, in as fixed
/// an order. It is multiplied by `scale`, rounded to reduce_dtype, and then
/// stored to `local`, or added to it where `accumulate` is set.
///
/// `sum_of_squares` of the values, not of the way they came here: one function
/// for every backend, relative error below 1e-9, NaN and infinity pass through.
struct ReducePart {
  /// [world_size * numel] of full_dtype, the wire dtype. On a CUDA device the
  /// sums are taken in it, in place: what it holds afterwards is undefined.
  const void* full;
  DType full_dtype;
  void* local;  ///< [numel] of local_dtype
  DType local_dtype;
  DType reduce_dtype;
  std::int64_t numel;  ///< elements per rank
  double scale = 1.0;
  bool accumulate = false;
  /// Where not null: receives, by the end of wait(), the sum of the squares of
  /// what `local` then holds. Costs no pass over memory. Floating point only.
  /// In the device's memory where the parts are.
  double* sum_of_squares = nullptr;
};

/// A collective in flight. wait() returns when its result may be read and
/// throws CommError; the destructor waits too, and logs that it had to.
/// Movable; a default-constructed Work is done. Must not outlive its
/// communicator, nor the memory of its parts.
class Work {
 public:
  class State {
   public:
    virtual ~State() = default;
    /// Called once. Throws CommError.
    virtual void wait() = 0;
    /// For the log line of a Work that nobody waited for.
    [[nodiscard]] virtual std::string describe() const = 0;
  };

  Work() = default;
  explicit Work(std::unique_ptr<State> state) : state_(std::move(state)) {}
  Work(Work&&) noexcept = default;
  Work& operator=(Work&& other) noexcept;
  ~Work();

  void wait();
  [[nodiscard]] bool pending() const { return state_ != nullptr; }

 private:
  std::unique_ptr<State> state_;
};

/// Collectives among the ranks of one mesh axis.
///
/// Every rank calls the same operations with the same sizes and labels; the
/// order is kept per operation, so that an all-gather issued early may overtake
/// a reduction. `label` names the FSDP unit or the purpose and appears in
/// errors. All operations work on any memory; those whose `full` lies in a
/// CommBuffer of this communicator move bytes once.
///
/// Threads  one thread at a time
/// Throws   CommError within timeout() of the last progress
class Communicator {
 public:
  virtual ~Communicator() = default;

  [[nodiscard]] virtual int rank() const = 0;
  [[nodiscard]] virtual int world_size() const = 0;
  [[nodiscard]] virtual std::string_view backend() const = 0;
  /// Whether buffers have memory. Without, they are addresses that must not be
  /// read or written, and collectives on parts whose `local` is null move
  /// nothing: calls and bytes are counted, and sums of squares are 0.
  [[nodiscard]] virtual bool has_memory() const { return true; }
  /// The CUDA device whose memory buffers have and parts may lie in; none: they
  /// are the host's. Collectives on its memory are done in the order of streams
  /// ([Note: streams]): the host waits for nothing, and wait() makes the
  /// thread's current stream wait.
  [[nodiscard]] virtual std::optional<int> cuda_device() const {
    return std::nullopt;
  }
  /// Whether collectives are done in that order, behind the host's back. Where
  /// so, `local` of a part may lie in memory of the host that the device
  /// reaches, and block_host() is what orders the host's own reads and writes
  /// of it behind those of collectives.
  [[nodiscard]] virtual bool runs_behind_host() const { return false; }
  /// Blocks until the device has done all that the caller's stream was given,
  /// and so every collective that was waited for.
  virtual void block_host() {}
  /// Whether a reduction of a device's memory rounds its sums to full_dtype on
  /// the way, in an order of the transport's, so that operands have to lie in
  /// the dtype in which sums are wanted.
  [[nodiscard]] virtual bool sums_in_full_dtype() const { return false; }

  /// Whether allocate_common gives every rank the very same pages, so that a
  /// gather of pieces that lie in place moves nothing. They may then be used
  /// for longer than the communicator, and the buffer, live.
  [[nodiscard]] virtual bool shares_common_memory() const { return false; }

  /// Allocates memory that all ranks share where the backend can (shm: the very
  /// same pages on every rank), private memory of the same size elsewhere: the
  /// target of an all-gather. Zeroed, page aligned.
  ///
  /// Comm   collective, in the same order on every rank
  /// Throws CommError that names the bytes needed and the limit
  virtual std::unique_ptr<CommBuffer> allocate_common(
      std::int64_t bytes, std::string_view label) = 0;

  /// Allocates memory of this rank that its peers can read where the backend
  /// can: the source of a reduction. Otherwise as allocate_common.
  virtual std::unique_ptr<CommBuffer> allocate_exported(
      std::int64_t bytes, std::string_view label) = 0;

  /// Allocates memory of this rank alone, where allocate_common would: no
  /// collective is given it as its buffer.
  [[nodiscard]] virtual std::unique_ptr<CommBuffer> allocate_private(
      std::int64_t bytes, std::string_view label) const;

  /// A communicator of this rank alone, with memory of the same kind.
  [[nodiscard]] virtual std::unique_ptr<Communicator> make_lone() const;

  /// On a device, gathers into buffers do not wait for what the caller computes
  /// ([Note: streams]). This lets the ones to come wait for all that the
  /// current stream has been given: call it once `local` was written.
  virtual void follow_caller() {}

  /// Waits until no peer reads `buffer` any more. Required before writing to an
  /// exported buffer that a reduction has used, and to a piece that lies in
  /// place; an all-gather that moves bytes into a common buffer does it by
  /// itself.
  ///
  /// Throws std::logic_error where this rank itself still uses the buffer: a
  ///        Work not waited for, or a gathered buffer not released
  virtual void acquire(CommBuffer& buffer) = 0;

  /// Says that this rank no longer reads `buffer`, so that the next all-gather
  /// may overwrite it. Required once per all-gather into a common buffer; a
  /// reduction releases exported buffers by itself. The next all-gather into a
  /// buffer that was not released is a std::logic_error.
  virtual void release(CommBuffer& buffer) = 0;

  /// Starts a grouped all-gather. `buffer` holds every part's `full`, or is
  /// null when they lie in memory that is not a CommBuffer.
  ///
  /// Where every part lies in place, in memory that the ranks share, nothing
  /// moves: the gather says that this rank has written its pieces, and waits
  /// until every rank has. Until a rank has released the buffer it reads them,
  /// so that nobody writes to its own before acquire(buffer) has returned.
  [[nodiscard]] virtual Work all_gather_into(std::span<const GatherPart> parts,
                                             CommBuffer* buffer,
                                             std::string_view label) = 0;

  /// Starts a grouped reduce-scatter; `buffer` as above, for `full`.
  [[nodiscard]] virtual Work reduce_scatter_into(
      std::span<const ReducePart> parts, CommBuffer* buffer,
      std::string_view label) = 0;

  /// Starts a grouped all-reduce; `local` may be the same memory as `full`.
  [[nodiscard]] virtual Work all_reduce(std::span<const ReducePart> parts,
                                        CommBuffer* buffer,
                                        std::string_view label) = 0;

  /// Copies `bytes` bytes at `data` from rank `root` to every rank. Blocks.
  virtual void broadcast(void* data, std::int64_t bytes, int root,
                         std::string_view label) = 0;

  /// Blocks until every rank arrived.
  virtual void barrier(std::string_view label) = 0;

  /// Says that this rank will take part no more. Peers that wait for it get a
  /// CommError with `reason` at once where the backend can tell them, else when
  /// their timeout passes.
  virtual void abandon(std::string_view reason);

  [[nodiscard]] virtual const CommCounters& counters() const = 0;
  [[nodiscard]] virtual std::chrono::milliseconds timeout() const = 0;
};

}  // namespace accordion
