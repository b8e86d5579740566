// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "accordion/fsdp/comm_groups.h"
#include "accordion/fsdp/gradient_sink.h"
#include "accordion/fsdp/options.h"
#include "accordion/fsdp/section_state.h"
#include "accordion/fsdp/sharded_parameter.h"
#include "accordion/fsdp/unit_discovery.h"
#include "accordion/offload/paged_arrays.h"
#include "accordion/shard/unit_layout.h"

namespace accordion {

/// Parameters of a unit. Memory of a rank beyond its shards, in brackets; none
/// in any state where it is gathered in place.
enum class ParameterState {
  Sharded,     ///< the module holds pieces [0, or secondary_bytes]
  Unsharding,  ///< an all-gather is in flight into a slot [unsharded_bytes]
  Unsharded,   ///< the module holds whole parameters [unsharded_bytes]
};

/// Gradients of a unit. Where they do not stay as shards, from Reducing on
/// gradient_shard_bytes more.
enum class GradientState {
  None,         ///< [0]
  Collecting,   ///< backward writes them to a slot [gradient_bytes]
  Whole,        ///< complete, and kept for the next pass [gradient_bytes]
  Reducing,     ///< a reduction reads the slot [gradient_bytes]
  AllReducing,  ///< the shards are being summed over replicas [0]
  Sharded,      ///< complete shards that go, with the unit's step or to where
                ///< they are offloaded [0]
};

/// A section in the stored dtype, whole: [padded_numel] each.
struct WholeSection {
  at::Tensor parameters = {};
  at::Tensor gradients = {};  ///< undefined where frozen or not asked for
};

/// // [Note: offloaded shards]
/// What FsdpOptions::offload names lives in arrays of a store, as far as it is
/// cut over ranks; what all ranks hold whole is small, and stays. The tensors
/// of shards and pieces lie where the store is mapped: everybody finds there
/// what they hold, checkpoints, LibTorch's optimizers and the user alike, and
/// it takes no memory until it is touched. Passes and AdamW go through the
/// buffers instead ([Note: two ways to the bytes]): a shard is read, block by
/// block, to its place in the slot that it is gathered in, ahead of that in the
/// order of the schedule. A gradient is reduced to a slot, with what it adds to
/// read there before, and written from it.

/// // [Note: shards on the host]
/// On a device there is no need of blocks and buffers: what
/// FsdpOptions::offload names lies in pinned memory of the host, which the
/// device's kernels read and write over the bus. A gather casts from it, a
/// reduction stores to it, each on its stream, and AdamW steps it on the CPU.
/// The host knows of neither, so it waits for the device wherever it gives the
/// control back to a program that may read gradients or write to shards: where
/// it would await readers below.
///
/// // [Note: gathers in place]
/// Where ranks share memory and compute in the stored dtype, the shards of a
/// unit lie side by side in one buffer that all of them map, each in the place
/// that it has in the whole. Gathering moves nothing: it waits until every rank
/// has said that its shard is written. Pieces are there at all times; whole
/// parameters are shown from the unshard to the reshard, and no longer, as if
/// they were in a slot, so that programs run the same on every backend.
///
/// What a rank writes its peers see at once. So these orders are kept:
///
///   written, then read   By the gather: a rank starts it when its shard is
///                        written, and reads when every rank has started it.
///   read, then written   By reshard and await_readers: a rank reshards a unit
///                        when it has read it, and writes when all ranks have
///                        resharded it. The executor waits for that wherever
///                        it gives the control back to a program that may
///                        write: at the end of a pass, and of the outermost
///                        forward, with gradients or without; in settle, which
///                        all that lists pieces calls, and AdamW; after a
///                        reshard by hand. A tensor that was assigned to a
///                        parameter waits where the unshard takes it over.
///   step in backward     By the reduction before it, which a rank takes part
///                        in when its backward of the unit is over.
///   whole between passes What stays whole (over microbatches, after an
///                        evaluation, by unshard) the next pass reads without
///                        a gather. So ranks meet at a barrier before that, and
///                        at the end of a pass that leaves it so.
///
/// Otherwise a piece is not written to while its unit is whole, or on its way
/// to be; reshard it, or list the pieces anew. (In a slot such a write shows at
/// the next gather only.) Ranks do not meet around evaluations for which
/// parameters stay whole, as they may have different numbers of batches. Where
/// a pass fails nothing is awaited, as peers may wait for this rank: what they
/// still read is of a pass that fails for them too.
///
/// With FsdpOptions::copies_in_place, and another dtype to compute in, the same
/// holds of copies in it. The shards are apart, and a gather casts what was
/// written to since (CopyInPlace::State): a pass may find everything changed
/// but what AdamW has just stepped, unless pieces were listed after that.
///
/// A rank that waits for a peer that left, or that waits for this one, gets the
/// communicator's error, which names the unit. Memory of shards lives as long
/// as a tensor on it, on every rank by itself.

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
    /// After each gradient; the unit of that number is Collecting.
    virtual void gradient_arrived(int unit) = 0;
  };

  /// Cuts the members' parameters into shards, whose memory replaces theirs.
  /// `number` is what the listener knows it by; `pages` has what is offloaded,
  /// null where nothing is.
  FsdpUnit(UnitMembers members, CommGroups groups, const FsdpOptions& options,
           std::shared_ptr<PagedArrays> pages, Listener& listener, int number);
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
  [[nodiscard]] const std::vector<SectionState>& sections() const {
    return sections_;
  }
  /// Null without FsdpOptions::copies_in_place.
  [[nodiscard]] CopyInPlace* copy_of(int section) {
    std::optional<CopyInPlace>& copy =
        sections_[static_cast<std::size_t>(section)].copy;
    return copy ? &*copy : nullptr;
  }
  [[nodiscard]] ParameterState parameter_state() const {
    return parameter_state_;
  }
  [[nodiscard]] GradientState gradient_state() const { return gradient_state_; }
  [[nodiscard]] const CommGroups& groups() const { return groups_; }
  /// Bytes of an all-gather, and of the slot that unshard needs; 0 where
  /// parameters are always whole.
  [[nodiscard]] std::int64_t unsharded_bytes() const { return slot_bytes_; }
  /// Whether its shards, or copies of them, lie where they are gathered, so
  /// that it needs no slot.
  [[nodiscard]] bool gathers_in_place() const { return common_ != nullptr; }
  /// Bytes of the slot that gradients need in a pass that reduces them at once,
  /// or keeps them whole, in the reduction's dtype; 0 where all are frozen.
  [[nodiscard]] std::int64_t gradient_bytes(GradientUse use) const;
  /// Of those, what this unit holds now.
  [[nodiscard]] std::int64_t whole_gradient_bytes() const {
    return gradient_slot_ == nullptr ? 0 : gradient_bytes(gradient_use_);
  }
  /// Bytes of the slot for sharded gradients; 0 where they stay.
  [[nodiscard]] std::int64_t gradient_shard_bytes() const {
    return gradient_shard_bytes_;
  }
  /// The sum of squares of this rank's share of the reduced gradients. What all
  /// ranks hold whole counts on rank 0. Waits for the reduction on a device.
  [[nodiscard]] double gradient_squares() const;
  /// Bytes of the all-reduce over replicas; 0 without replicas.
  [[nodiscard]] std::int64_t all_reduce_bytes() const;
  /// Bytes of the copy that stays between forward and backward where
  /// `groups().secondary` holds one.
  [[nodiscard]] std::int64_t secondary_bytes() const;
  /// The whole [padded_numel] of what this rank holds of a section, its
  /// parameters or gradients [numel_per_rank]; a copy.
  ///
  /// Comm  one all-gather, named `label`, where the section is sharded
  [[nodiscard]] at::Tensor gather_flat(const SectionState& section,
                                       const at::Tensor& shard,
                                       const std::string& label) const;
  /// Whether the tensor's memory is that of this unit's unsharded parameters.
  [[nodiscard]] bool owns_memory_of(const at::Tensor& tensor) const;

  /// Follows changes of requires_grad; returns whether there were any.
  ///
  /// Requires  GradientState::None or Whole; every rank makes the same changes
  bool update_trainable();

  // ---- Parameters: unit_parameters.cpp ----

  /// Sharded -> Unsharding. `slot` is not used by anything else until reshard;
  /// null where it gathers in place.
  ///
  /// Comm    one grouped all-gather of unsharded_bytes(); over the secondary
  ///         group after reshard_to_secondary
  /// Throws  c10::ValueError for a replaced piece (ShardedParameter)
  void start_unshard(CommBuffer* slot);
  /// Unsharding -> Unsharded. Throws CommError.
  void finish_unshard();
  /// Unsharding or Unsharded -> Sharded. Returns the slot; null where it
  /// gathers in place.
  CommBuffer* reshard();
  /// Unsharded -> Sharded, with a copy spread over the secondary group from
  /// which the next unshard gathers. Returns the slot.
  CommBuffer& reshard_to_secondary();
  /// Forgets that copy: the parameters are about to change.
  void drop_secondary() { has_secondary_ = false; }
  /// A pass begins: what lies between two may have written to shards.
  void age_copies();
  /// Shards are about to be written to, or may have been.
  void forget_copies();
  /// Waits until every rank has resharded the unit as often as this one, so
  /// that the shard may be written to. At once where that changes no peer's.
  ///
  /// Requires  Sharded
  /// Throws    CommError
  void await_readers();

  // ---- Gradients: unit_gradients.cpp ----

  /// None -> Collecting into `slot`.
  void begin_gradients(CommBuffer& slot, GradientUse use);
  /// Whole -> Collecting: the pass adds to what is there.
  void resume_gradients();
  /// Notes which gradients the backward that runs now delivers.
  void expect_gradients();
  /// Whether all that were expected in this pass arrived.
  [[nodiscard]] bool gradients_complete() const { return num_missing_ == 0; }
  /// Collecting -> Whole.
  void keep_gradients();
  /// Collecting or Whole -> Reducing. Gradients that did not arrive count as
  /// zero. Sharded gradients go to `shards` where they do not stay.
  ///
  /// Comm  one grouped reduce-scatter of sharded sections and one grouped
  ///       all-reduce of whole ones, of gradient_bytes() together; the sum is
  ///       multiplied by `scale`
  void start_reduce(double scale, CommBuffer* shards);
  /// Reducing -> None or Sharded. The result was added to, or has become,
  /// `.grad()` of the pieces; with replicas it is a partial sum until they are
  /// all-reduced. Returns the slot. Throws CommError.
  CommBuffer& finish_reduce();
  /// Whether the gradients are partial sums, of the shard axis only.
  [[nodiscard]] bool has_partial_gradients() const { return partial_; }
  /// None -> AllReducing. `shards`: a slot to load what earlier passes left, if
  /// it was offloaded; null where gradients stay, or are in their slot.
  ///
  /// Comm  one grouped all-reduce over replicas of all_reduce_bytes(); the mean
  void start_all_reduce(CommBuffer* shards);
  /// AllReducing -> None or Sharded. Throws CommError.
  void finish_all_reduce();
  /// Sharded -> None: `.grad()` is undefined. Returns the slot of the shards.
  CommBuffer& free_gradient_shards();
  /// Any -> None, without a result: for a step that failed. Slots that were
  /// held, else null.
  struct DroppedSlots {
    CommBuffer* gradients = nullptr;
    CommBuffer* shards = nullptr;
  };
  DroppedSlots drop_gradients();

  // ---- What is offloaded: unit_offload.cpp ----

  /// Begins to read the shards to come with the next unshard, as far as there
  /// are buffers, `most_buffers` with what others read ahead. Whether all of
  /// them will be there.
  [[nodiscard]] bool read_ahead(int most_buffers) const;
  /// The same for gradients that this pass adds to.
  void read_gradients_ahead(int most_buffers) const;
  /// Whether sharded gradients wait in their slot to be offloaded or stepped.
  [[nodiscard]] bool holds_gradient_shards() const {
    return gradient_shard_slot_ != nullptr &&
           (gradient_state_ == GradientState::None ||
            gradient_state_ == GradientState::Sharded);
  }
  /// Sharded, or None with partial sums -> None; they are on their way to where
  /// they live. Returns the slot.
  CommBuffer& offload_gradients();

  // ---- Whole parameters outside of passes: unit_whole.cpp ----

  /// Brings what the user assigned to parameters and gradients to the shards.
  void adopt_assignments();
  /// Gathers a section; a copy where it is whole on each rank.
  ///
  /// Comm  one all-gather of the parameters, and one of gradients on request
  [[nodiscard]] WholeSection gather_whole(int section, bool gradients) const;
  /// Memory for one.
  [[nodiscard]] WholeSection make_whole(int section, bool gradients) const;
  /// A parameter [global shape] in a flat tensor [padded_numel] of its section.
  [[nodiscard]] at::Tensor whole_of(int parameter,
                                    const at::Tensor& flat) const;
  /// Copies this rank's range of `whole` to the shards.
  void assign_whole(int section, const WholeSection& whole);
  /// From begin_summon to end_summon the unit refuses to be unsharded.
  void begin_summon() { summoned_ = true; }
  [[nodiscard]] bool summoned() const { return summoned_; }
  /// Lets the module hold parameters in `whole` [one per section]; `.grad()` is
  /// the gradient there or, where that is undefined, undefined.
  void show_whole(const std::vector<WholeSection>& whole);
  /// Brings what was assigned meanwhile to what show_whole got. Throws
  /// c10::ValueError for another shape or dtype.
  void collect_whole();
  /// Shows pieces again.
  void end_summon();

  void receive_gradient(int source, const at::Tensor& gradient) override;
  at::Tensor offer_destination(int source) override;
  [[noreturn]] void reject_gradient(int source) override;

 private:
  [[nodiscard]] at::TensorOptions on_device(DType dtype) const;
  void plan_sections();
  void make_sections();
  [[nodiscard]] at::Tensor place_of(const SectionState& section) const;
  void make_parameters(const std::vector<MemberParameter>& members);
  [[nodiscard]] SlotStorage make_unsharded(const SectionState& section) const;
  void make_gradient(SectionState& section) const;
  [[nodiscard]] at::Tensor make_shard(const Section& section,
                                      std::optional<int>& array) const;
  [[nodiscard]] at::Tensor make_host_shard(const Section& section) const;
  [[nodiscard]] bool goes_to_slot(const SectionState& section) const {
    return frees_gradients_ || section.paged_gradient.has_value();
  }
  [[nodiscard]] GatherPart stage_shard(const SectionState& section,
                                       CommBuffer& slot) const;
  [[nodiscard]] bool adds_to(const SectionState& section) const;
  [[nodiscard]] std::byte* gradient_target(const SectionState& section) const;
  void load_gradient(const SectionState& section) const;
  void forget_shard(const SectionState& section) const;
  void forget_gradient(const SectionState& section) const;
  void page_out(const SectionState& section) const;
  void place_gradients();
  void bind_gradient_shards(CommBuffer* slot);
  [[nodiscard]] DType gradient_dtype(const SectionState& section,
                                     GradientUse use) const;
  [[nodiscard]] SectionState& section_of(int parameter) {
    return sections_[static_cast<std::size_t>(layout_.section_of(parameter))];
  }
  void adopt_parameters();
  [[nodiscard]] Work gather(CommBuffer& slot);
  void bind_sections();
  [[nodiscard]] CommBuffer* free_slot();
  [[nodiscard]] bool slot_is_gathered() const;
  [[nodiscard]] std::byte* gradient_data(const SectionState& section) const;
  [[nodiscard]] std::byte* gradient_place(int parameter);
  [[nodiscard]] at::Tensor gradient_in_slot(int parameter);
  void store_gradient(int parameter, const at::Tensor& gradient);
  void zero_missing_gradients();
  [[nodiscard]] bool prepare_accumulation(const SectionState& section);
  void complete_gradients();

  std::string name_;
  CommGroups groups_;
  std::string label_;  // of its collectives
  std::optional<c10::ScalarType> reduce_dtype_;
  bool frees_gradients_;  // once the unit was stepped
  bool offloads_parameters_;
  bool offloads_gradients_;
  std::shared_ptr<PagedArrays> pages_;
  HostPool* host_pool_;  // null but where shards lie on a device's host
  Listener& listener_;
  int number_;
  UnitLayout layout_;
  std::vector<SectionState> sections_;
  std::vector<ShardedParameter> parameters_;
  /// The parameters of what delivers gradients: the first tensor of parameter i
  /// is source i, and tensors that are tied to some parameter follow.
  std::vector<int> sources_;
  std::int64_t slot_bytes_ = 0;
  std::int64_t gradient_bytes_[2] = {0, 0};  // by GradientUse
  std::int64_t gradient_shard_bytes_ = 0;

  ParameterState parameter_state_ = ParameterState::Sharded;
  /// Where shards or copies of them lie side by side, if the unit is gathered
  /// in place; else null. Owned with the tensors on it.
  std::shared_ptr<CommBuffer> common_;
  CommBuffer* parameter_slot_ = nullptr;  // or common_
  Work gather_;
  bool has_secondary_ = false;
  bool summoned_ = false;

  GradientState gradient_state_ = GradientState::None;
  GradientUse gradient_use_ = GradientUse::Reduced;
  CommBuffer* gradient_slot_ = nullptr;
  CommBuffer* gradient_shard_slot_ = nullptr;
  std::vector<bool> filled_;   // per parameter: its part of the slot counts
  std::vector<bool> offered_;  // per parameter: to an operator, in this pass
  /// Per source, the backward that is to deliver its gradient in this pass.
  /// One that runs inside, of a checkpointed call, delivers it only in part.
  std::vector<int> expected_in_;
  std::vector<bool> arrived_;  // the same
  int num_missing_ = 0;        // expected and not arrived
  bool partial_ = false;
  Work reduction_;
  Work whole_reduction_;  // of sections that are whole on every rank
};

}  // namespace accordion
