// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/fsdp/allocation_meter.h"

#include <chrono>
#include <exception>
#include <mutex>
#include <unordered_map>
#include <utility>

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/util/Exception.h>

namespace accordion {

struct AllocationMeter::Account {
  Account* enclosing = nullptr;  // of the same thread
  MemoryPhase phase = MemoryPhase::Rest;
  AllocatedBytes live;
  AllocatedBytes peak;
  std::optional<std::int64_t> limit;
  OnRefused refused;
  bool records = false;
  bool counts_meta = false;
  std::vector<Sample> samples;

  void change(MemoryPhase of, std::int64_t bytes) {
    live.by_phase[static_cast<std::size_t>(of)] += bytes;
    if (live.total() > peak.total()) {
      peak = live;
    }
    if (records) {
      const auto now = std::chrono::steady_clock::now().time_since_epoch();
      samples.push_back({.ns = now.count(),
                         .in_passes = live.in_passes(),
                         .outside = live.outside()});
    }
  }
};

/// Who holds which memory. One lock for all: it is held for tens of
/// nanoseconds, and a rank allocates on one thread.
class AllocationLedger {
 public:
  using Account = AllocationMeter::Account;
  using Lock = std::lock_guard<std::mutex>;

  [[nodiscard]] Lock lock() const { return Lock(mutex_); }

  void add(const void* data, std::int64_t bytes, Account& account) {
    const Lock held(mutex_);
    entries_.insert_or_assign(data, Entry{&account, bytes, account.phase});
    account.change(account.phase, bytes);
  }

  void remove(const void* data) {
    const Lock held(mutex_);
    const auto entry = entries_.find(data);
    if (entry != entries_.end()) {
      entry->second.account->change(entry->second.phase, -entry->second.bytes);
      entries_.erase(entry);
    }
  }

  [[nodiscard]] std::optional<MemoryPhase> phase_of(
      const void* data, const Account& account) const {
    const Lock held(mutex_);
    const auto entry = entries_.find(data);
    return entry != entries_.end() && entry->second.account == &account
               ? std::optional(entry->second.phase)
               : std::nullopt;
  }

  void forget(const Account& account) {
    const Lock held(mutex_);
    std::erase_if(entries_, [&account](const auto& entry) {
      return entry.second.account == &account;
    });
  }

  /// Lets the account refuse what would exceed its limit.
  void admit(std::int64_t bytes, Account& account) {
    if (exceeds_limit(bytes, account)) {
      refuse({.bytes = bytes}, account);
    }
  }

  /// Outside of the lock: what is called may allocate.
  void refuse(const AllocationMeter::Refused& what, Account& account) {
    AllocationMeter::OnRefused refused;
    {
      const Lock held(mutex_);
      account.limit.reset();
      refused = std::exchange(account.refused, nullptr);
    }
    if (refused) {
      refused(what);
    }
  }

 private:
  struct Entry {
    Account* account;
    std::int64_t bytes;
    MemoryPhase phase;
  };

  [[nodiscard]] bool exceeds_limit(std::int64_t bytes,
                                   const Account& account) const {
    const Lock held(mutex_);
    return account.limit && account.live.total() + bytes > *account.limit;
  }

  mutable std::mutex mutex_;
  std::unordered_map<const void*, Entry> entries_;
};

namespace {

/// Never destroyed: tensors may be freed while the process ends.
AllocationLedger& ledger() {
  static auto* const instance = new AllocationLedger;
  return *instance;
}

/// The account of this thread's innermost meter.
thread_local AllocationLedger::Account* current = nullptr;

/// Hands out the memory of the allocator that stood before it.
class LedgerAllocator final : public c10::Allocator {
 public:
  static void install() {
    static const bool installed = [] {
      inner_ = c10::GetCPUAllocator();
      TORCH_CHECK(inner_->raw_deleter() != nullptr,
                  "[AllocationMeter] this program's CPU allocator has no raw "
                  "deleter, so that what it hands out cannot be counted. Turn "
                  "it off (c10::SetCPUAllocator), or make no meter.");
      static LedgerAllocator allocator;
      constexpr std::uint8_t kAboveDefault = 1;
      c10::SetCPUAllocator(&allocator, kAboveDefault);
      return true;
    }();
    static_cast<void>(installed);
  }

  c10::DataPtr allocate(std::size_t bytes) override {
    AllocationLedger::Account* const account = current;
    if (account == nullptr || bytes == 0) {
      return owned(inner_->allocate(bytes));
    }
    const auto size = static_cast<std::int64_t>(bytes);
    ledger().admit(size, *account);
    c10::DataPtr memory = owned(allocate_or_refuse(size, *account));
    ledger().add(memory.get(), size, *account);
    return memory;
  }

  [[nodiscard]] c10::DeleterFnPtr raw_deleter() const override {
    return &release;
  }

  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }

 private:
  static c10::DataPtr allocate_or_refuse(std::int64_t bytes,
                                         AllocationLedger::Account& account) {
    try {
      return inner_->allocate(static_cast<std::size_t>(bytes));
    } catch (const std::exception& error) {
      ledger().refuse({.bytes = bytes, .error = error.what()}, account);
      throw;
    }
  }

  /// Its context is its memory, as that of any allocator with a raw deleter.
  static c10::DataPtr owned(c10::DataPtr memory) {
    const c10::Device device = memory.device();
    void* const data = memory.release_context();
    return {data, data, &release, device};
  }

  static void release(void* data) {
    if (data != nullptr) {
      ledger().remove(data);
      inner_->raw_deleter()(data);
    }
  }

  inline static c10::Allocator* inner_ = nullptr;
};

/// Hands out nothing, and enters it where the thread's meter counts meta: under
/// the address of a byte, which stands for the memory there would be.
class MetaLedgerAllocator final : public c10::Allocator {
 public:
  static void install() {
    static const bool installed = [] {
      static MetaLedgerAllocator allocator;
      c10::SetAllocator(c10::DeviceType::Meta, &allocator);
      return true;
    }();
    static_cast<void>(installed);
  }

  c10::DataPtr allocate(std::size_t bytes) override {
    AllocationLedger::Account* const account = current;
    if (account == nullptr || !account->counts_meta || bytes == 0) {
      return {nullptr, c10::Device(c10::DeviceType::Meta)};
    }
    const auto size = static_cast<std::int64_t>(bytes);
    ledger().admit(size, *account);
    auto place = std::make_unique<char>();
    ledger().add(place.get(), size, *account);
    return {nullptr, place.release(), &release,
            c10::Device(c10::DeviceType::Meta)};
  }

  void copy_data(void* /*to*/, const void* /*from*/,
                 std::size_t /*bytes*/) const override {}

 private:
  static void release(void* place) {
    const std::unique_ptr<char> owned(static_cast<char*>(place));
    ledger().remove(place);
  }
};

}  // namespace

std::int64_t AllocatedBytes::total() const {
  std::int64_t sum = 0;
  for (const std::int64_t bytes : by_phase) {
    sum += bytes;
  }
  return sum;
}

std::int64_t AllocatedBytes::in_passes() const {
  const auto of = [this](MemoryPhase phase) {
    return by_phase[static_cast<std::size_t>(phase)];
  };
  return of(MemoryPhase::Forward) + of(MemoryPhase::Backward);
}

AllocationMeter::AllocationMeter() : account_(std::make_unique<Account>()) {
  LedgerAllocator::install();
  account_->enclosing = std::exchange(current, account_.get());
}

AllocationMeter::~AllocationMeter() {
  // Out of the chain wherever it stands: meters need not end in order.
  for (Account** link = &current; *link != nullptr;
       link = &(*link)->enclosing) {
    if (*link == account_.get()) {
      *link = account_->enclosing;
      break;
    }
  }
  ledger().forget(*account_);
}

MemoryPhase AllocationMeter::enter(MemoryPhase phase) {
  const auto lock = ledger().lock();
  return std::exchange(account_->phase, phase);
}

MemoryPhase AllocationMeter::phase() const {
  const auto lock = ledger().lock();
  return account_->phase;
}

AllocatedBytes AllocationMeter::live() const {
  const auto lock = ledger().lock();
  return account_->live;
}

AllocatedBytes AllocationMeter::take_peak() {
  const auto lock = ledger().lock();
  return std::exchange(account_->peak, account_->live);
}

std::optional<MemoryPhase> AllocationMeter::phase_of(
    const void* context) const {
  return ledger().phase_of(context, *account_);
}

void AllocationMeter::count_meta() {
  MetaLedgerAllocator::install();
  const auto lock = ledger().lock();
  account_->counts_meta = true;
}

void AllocationMeter::set_limit(std::optional<std::int64_t> bytes,
                                OnRefused refused) {
  const auto lock = ledger().lock();
  account_->limit = bytes;
  account_->refused = std::move(refused);
}

void AllocationMeter::record(bool on) {
  const auto lock = ledger().lock();
  account_->records = on;
  account_->samples.clear();
}

std::vector<AllocationMeter::Sample> AllocationMeter::samples() const {
  const auto lock = ledger().lock();
  return account_->samples;
}

}  // namespace accordion
