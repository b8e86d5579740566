// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/fsdp/slot_storage.h"

#include <algorithm>
#include <string>
#include <vector>

#include <ATen/ops/empty.h>

namespace accordion {

namespace {

c10::DataPtr at_address(void* memory) {
  return {memory, c10::Device(c10::kCPU)};
}

c10::Storage make_storage(std::int64_t bytes) {
  return c10::Storage(c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(), bytes, at_address(nullptr),
      /*allocator=*/nullptr, /*resizable=*/false));
}

/// Makes every access to the storage an error, or takes that back, where this
/// LibTorch can do both. A template, so that the question may be asked.
template <class Impl>
void set_readable(Impl* storage, bool readable, const std::string& message) {
  if constexpr (requires { storage->clear_data_ptr_access_error_msg_(); }) {
    if (readable) {
      storage->clear_data_ptr_access_error_msg_();
    } else {
      storage->release_data_and_set_meta_custom_data_ptr_error_msg_(message);
    }
  }
}

}  // namespace

SlotStorage::SlotStorage(c10::Storage resident)
    : storage_(std::move(resident)) {}

SlotStorage::SlotStorage(std::int64_t bytes, const std::string& message)
    : storage_(make_storage(bytes)), message_(message) {
  set_readable(storage_.unsafeGetStorageImpl(), false, message_);
}

void SlotStorage::bind(void* memory) {
  c10::StorageImpl* storage = storage_.unsafeGetStorageImpl();
  set_readable(storage, true, message_);
  storage->set_data_ptr_noswap(at_address(memory));
}

void SlotStorage::release() {
  c10::StorageImpl* storage = storage_.unsafeGetStorageImpl();
  storage->set_data_ptr_noswap(at_address(nullptr));
  set_readable(storage, false, message_);
}

at::Tensor SlotStorage::view(std::int64_t offset, at::IntArrayRef shape,
                             c10::ScalarType dtype) const {
  if (message_.empty()) {
    return tensor_on(storage_, offset, shape, dtype);
  }
  c10::StorageImpl* storage = storage_.unsafeGetStorageImpl();
  set_readable(storage, true, message_);  // set_ looks at the address
  at::Tensor tensor = tensor_on(storage_, offset, shape, dtype);
  set_readable(storage, false, message_);
  return tensor;
}

bool SlotStorage::holds(const at::Tensor& tensor) const {
  return tensor.has_storage() && tensor.storage().unsafeGetStorageImpl() ==
                                     storage_.unsafeGetStorageImpl();
}

at::Tensor tensor_on(const c10::Storage& storage, std::int64_t offset,
                     at::IntArrayRef shape, c10::ScalarType dtype) {
  std::vector<std::int64_t> strides(shape.size());
  std::int64_t stride = 1;
  for (std::size_t dim = shape.size(); dim-- > 0;) {
    strides[dim] = stride;
    stride *= std::max<std::int64_t>(shape[dim], 1);
  }
  return at::empty({0}, at::TensorOptions(dtype))
      .set_(storage, offset, shape, strides);
}

}  // namespace accordion
