// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/fsdp/step_trace.h"

#include <algorithm>
#include <array>

namespace accordion {
namespace {

constexpr double kMsPerNs = 1e-6;

/// The parts of a breakdown that a kind counts for.
struct Account {
  std::string_view name;
  double StepBreakdown::*part;
  double StepBreakdown::*wait = nullptr;
};

const Account& account_of(SpanKind kind) {
  using B = StepBreakdown;
  static constexpr std::array<Account, 16> kAccounts = {{
      {"start gather", &B::gather},
      {"await gather", &B::gather, &B::gather_wait},
      {"reshard", &B::gather},
      {"begin gradients", &B::reduce},
      {"keep gradients", &B::reduce},
      {"start reduce", &B::reduce},
      {"await reduce", &B::reduce, &B::reduce_wait},
      {"start all-reduce", &B::reduce},
      {"await all-reduce", &B::reduce, &B::reduce_wait},
      {"offload gradients", &B::reduce},
      {"forward", &B::compute},
      {"backward", &B::compute},
      {"recompute", &B::compute},
      {"data", &B::data},
      {"optimizer", &B::optimizer},
      {"other", &B::other},
  }};
  return kAccounts.at(static_cast<std::size_t>(kind));
}

bool is_marker_pair(SpanKind kind) {
  return kind == SpanKind::Forward || kind == SpanKind::Backward;
}

/// Adds up what each moment was spent on while spans open and close.
class Accountant {
 public:
  Accountant(StepBreakdown& result, std::int64_t begin_ns)
      : result_(result), last_ns_(begin_ns) {}

  /// Counts the time up to `now_ns` for `kind`; compute where there is none.
  void advance(std::int64_t now_ns, const Span* span) {
    const double ms = static_cast<double>(now_ns - last_ns_) * kMsPerNs;
    last_ns_ = now_ns;
    if (span == nullptr) {
      result_.compute += ms;
      return;
    }
    const Account& account = account_of(span->kind);
    result_.*account.part += ms;
    if (account.wait != nullptr) {
      result_.*account.wait += ms;
    }
  }

 private:
  StepBreakdown& result_;
  std::int64_t last_ns_;
};

}  // namespace

std::string_view to_string(SpanKind kind) {
  return account_of(kind).name;
}

void StepTrace::begin_step() {
  spans_.clear();
  begin_ns_ = now_ns();
  end_ns_ = begin_ns_;
}

void StepTrace::end(SpanKind kind, int unit) {
  const std::int64_t now = now_ns();
  const auto open =
      std::find_if(spans_.rbegin(), spans_.rend(), [&](const Span& span) {
        return span.end_ns == Span::kOpen && span.kind == kind &&
               span.unit == unit;
      });
  if (open != spans_.rend()) {
    open->end_ns = now;
  }
}

StepBreakdown break_down(const StepTrace& trace) {
  return break_down(trace.spans(), trace.begin_ns(), trace.end_ns());
}

StepBreakdown break_down(std::span<const Span> spans, std::int64_t begin_ns,
                         std::int64_t end_ns) {
  StepBreakdown result;
  result.total = static_cast<double>(end_ns - begin_ns) * kMsPerNs;
  Accountant accountant(result, begin_ns);
  std::vector<const Span*> open;
  const auto innermost = [&open] {
    return open.empty() ? nullptr : open.back();
  };
  const auto close_up_to = [&](std::int64_t ns) {
    while (!open.empty() && open.back()->end_ns <= ns) {
      accountant.advance(open.back()->end_ns, innermost());
      open.pop_back();
    }
  };
  for (const Span& span : spans) {
    // Forward and backward need not nest, and count as what is left anyway.
    if (is_marker_pair(span.kind) || span.end_ns == Span::kOpen) {
      continue;
    }
    close_up_to(span.begin_ns);
    accountant.advance(span.begin_ns, innermost());
    open.push_back(&span);
  }
  close_up_to(end_ns);
  accountant.advance(end_ns, innermost());
  return result;
}

}  // namespace accordion
