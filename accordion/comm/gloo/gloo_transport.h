// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "accordion/comm/gloo/gloo_communicator.h"
#include "accordion/comm/gloo/gloo_declarations.h"
#include "accordion/comm/rank_names.h"

// After the declarations, which it needs.
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

namespace accordion::detail {

/// One call of a collective.
struct GlooCall {
  CommOp op;
  std::int64_t number;  ///< among those of its kind
  std::string label;
};

/// Moves bytes between the ranks of a group and says who did not come.
///
/// Messages are matched by a tag that counts per kind of operation, so that
/// kinds may overtake each other. Every function throws CommError that names
/// call and ranks.
class GlooTransport {
 public:
  GlooTransport(c10::intrusive_ptr<c10d::ProcessGroupGloo> group,
                const GlooOptions& options)
      : group_(std::move(group)), options_(options), names_(options.members) {}

  [[nodiscard]] const GlooOptions& options() const { return options_; }

  /// One message under way, to or from `peer`.
  struct Transfer {
    c10::intrusive_ptr<c10d::Work> work;
    int peer;
  };
  /// Memory and bytes of what goes to or comes from a rank.
  using Pieces = std::function<std::pair<const void*, std::int64_t>(int rank)>;

  /// Exchanges pieces with every peer: sends those that `outgoing` gives for
  /// it, and receives into those that `incoming` gives. In the background;
  /// appends to `transfers`.
  void exchange(const GlooCall& call, const Pieces& outgoing,
                const Pieces& incoming, std::vector<Transfer>& transfers);
  /// Waits for all transfers.
  void finish(const GlooCall& call, std::vector<Transfer>& transfers) const;

  void broadcast(const GlooCall& call, void* data, std::int64_t bytes,
                 int root);
  void barrier(const GlooCall& call);
  /// Throws CommError that names both sides unless all ranks make this call.
  void compare(const GlooCall& call, std::int64_t bytes, std::size_t num_parts);

 private:
  void exchange(const GlooCall& call, std::uint32_t kind,
                const Pieces& outgoing, const Pieces& incoming,
                std::vector<Transfer>& transfers);
  // Fills in every rank's share of `all`, of which this rank's is there.
  void exchange_all(const GlooCall& call, std::uint32_t kind,
                    std::span<std::byte> all);
  [[noreturn]] void fail(const GlooCall& call, std::span<const int> missing,
                         const std::exception& cause) const;

  c10::intrusive_ptr<c10d::ProcessGroupGloo> group_;
  const GlooOptions options_;
  const RankNames names_;
  std::array<std::uint32_t, kNumCommOps + 1> messages_{};  // by kind
};

}  // namespace accordion::detail
