// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "accordion/comm/communicator.h"
#include "accordion/fsdp/gradient_sink.h"
#include "accordion/fsdp/options.h"
#include "accordion/fsdp/sharded_parameter.h"
#include "accordion/fsdp/unit_discovery.h"
#include "accordion/fsdp/unsharded_storage.h"
#include "accordion/shard/unit_layout.h"

namespace accordion {

/// The communicators of a sharded module. A strategy is a choice of these:
/// full_shard gathers and reduce-scatters over all ranks; no_shard "gathers"
/// over a group of one, which leaves a cast or nothing, and all-reduces.
struct CommGroups {
  std::shared_ptr<Communicator> gather;  ///< ranks that hold pieces of one copy
  std::shared_ptr<Communicator> reduce;  ///< ranks whose gradients are summed

  [[nodiscard]] bool sharded() const { return gather->world_size() > 1; }
};

/// Parameters of a unit. Memory of a rank beyond its shards, in brackets.
enum class ParameterState {
  Sharded,     ///< the module holds pieces [0]
  Unsharding,  ///< an all-gather is in flight into a slot [unsharded_bytes]
  Unsharded,   ///< the module holds whole parameters [unsharded_bytes]
};

/// Gradients of a unit's whole parameters.
enum class GradientState {
  None,        ///< [0]
  Collecting,  ///< backward writes them to a slot [gradient_bytes]
  Reducing,    ///< a reduction reads the slot [gradient_bytes]
};

/// One FSDP unit: its shards, and the transitions between the states above.
/// Decides nothing; the executor says when.
///
/// Threads  the thread that runs forward and backward
class FsdpUnit : public GradientReceiver,
                 public std::enable_shared_from_this<FsdpUnit> {
 public:
  /// What the unit tells about gradients that autograd delivered.
  class Listener {
   public:
    virtual ~Listener() = default;
    /// After each gradient; the unit is Collecting.
    virtual void gradient_arrived(FsdpUnit& unit) = 0;
  };

  /// Cuts the members' parameters into shards, whose memory replaces theirs.
  FsdpUnit(UnitMembers members, CommGroups groups,
           const MixedPrecision& precision, Listener& listener);
  ~FsdpUnit() override;
  FsdpUnit(const FsdpUnit&) = delete;
  FsdpUnit& operator=(const FsdpUnit&) = delete;
  /// Shows the sharded faces for the first time; separate from construction
  /// because the parameters' gradient nodes refer back to the unit.
  void attach();

  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] const UnitLayout& layout() const { return layout_; }
  [[nodiscard]] const std::vector<ShardedParameter>& parameters() const {
    return parameters_;
  }
  [[nodiscard]] ParameterState parameter_state() const {
    return parameter_state_;
  }
  [[nodiscard]] GradientState gradient_state() const { return gradient_state_; }
  /// Bytes of the slot that unshard needs; 0 where parameters are always whole.
  [[nodiscard]] std::int64_t unsharded_bytes() const;
  /// Bytes of the slot that gradients need; 0 where all are frozen.
  [[nodiscard]] std::int64_t gradient_bytes() const { return gradient_bytes_; }
  [[nodiscard]] const CommGroups& groups() const { return groups_; }
  /// Whether the tensor's memory is that of this unit's unsharded parameters.
  [[nodiscard]] bool owns_memory_of(const at::Tensor& tensor) const;

  /// This rank's shard [numel_per_rank] and gradient [numel_per_rank] of a
  /// section; the gradient is undefined where frozen.
  [[nodiscard]] const at::Tensor& shard(int section) const;
  [[nodiscard]] const at::Tensor& shard_gradient(int section) const;

  /// Sharded -> Unsharding. `slot` is not used by anything else until reshard.
  ///
  /// Comm    one grouped all-gather of layout().unsharded_bytes()
  /// Throws  c10::ValueError for a replaced piece (ShardedParameter)
  void start_unshard(CommBuffer& slot);
  /// Unsharding -> Unsharded. Throws CommError.
  void finish_unshard();
  /// Unsharding or Unsharded -> Sharded. Returns the slot.
  CommBuffer& reshard();

  /// None -> Collecting.
  void begin_gradients(CommBuffer& slot);
  /// Whether every trainable parameter's gradient arrived.
  [[nodiscard]] bool gradients_complete() const;
  /// Collecting -> Reducing. Gradients that did not arrive count as zero.
  ///
  /// Comm  one grouped reduce-scatter (all-reduce where not sharded) of
  ///       gradient_bytes(), averaged over the ranks
  void start_reduce();
  /// Reducing -> None. The mean over ranks was added to, or has become,
  /// `.grad()` of the pieces. Returns the slot. Throws CommError.
  CommBuffer& finish_reduce();
  /// Any -> None, without a result: for a step that failed.
  CommBuffer* drop_gradients();

  void receive_gradient(int parameter, const at::Tensor& gradient) override;
  [[noreturn]] void reject_gradient(int parameter) override;

 private:
  /// What a section needs at run time.
  struct SectionState {
    at::Tensor shard;                  // [numel_per_rank] stored dtype
    at::Tensor gradient;               // [numel_per_rank] stored dtype
    UnshardedStorage unsharded;        // padded_numel of gathered dtype
    std::int64_t gradient_offset = 0;  // in the gradient slot, bytes
  };

  [[nodiscard]] UnshardedStorage make_unsharded(const Section& section,
                                                const at::Tensor& shard) const;
  void make_sections();
  void make_parameters(const std::vector<MemberParameter>& members);
  [[nodiscard]] std::byte* gradient_data(int section) const;
  [[nodiscard]] at::Tensor gradient_in_slot(int parameter) const;
  void zero_missing_gradients();
  [[nodiscard]] bool prepare_accumulation(int section);

  std::string name_;
  CommGroups groups_;
  std::optional<c10::ScalarType> reduce_dtype_;
  Listener& listener_;
  UnitLayout layout_;
  std::vector<SectionState> sections_;
  std::vector<ShardedParameter> parameters_;
  std::int64_t gradient_bytes_ = 0;
  int num_trainable_ = 0;

  ParameterState parameter_state_ = ParameterState::Sharded;
  GradientState gradient_state_ = GradientState::None;
  CommBuffer* parameter_slot_ = nullptr;
  CommBuffer* gradient_slot_ = nullptr;
  std::vector<bool> arrived_;  // per parameter, while Collecting
  int num_arrived_ = 0;
  Work gather_;
  Work reduction_;
};

}  // namespace accordion
