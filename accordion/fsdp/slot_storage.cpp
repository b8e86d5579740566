// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/fsdp/slot_storage.h"

#include <string>

#include <ATen/core/Tensor.h>

namespace accordion {

namespace {

c10::DataPtr at_address(void* memory, c10::Device device) {
  return {device.is_meta() ? nullptr : memory, device};
}

c10::Storage make_storage(std::int64_t bytes, c10::Device device) {
  return c10::Storage(c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(), bytes, at_address(nullptr, device),
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

SlotStorage::SlotStorage(std::int64_t bytes, c10::Device device,
                         const std::string& message)
    : storage_(make_storage(bytes, device)), message_(message) {
  set_readable(storage_.unsafeGetStorageImpl(), false, message_);
}

void SlotStorage::bind(void* memory) {
  c10::StorageImpl* storage = storage_.unsafeGetStorageImpl();
  set_readable(storage, true, message_);
  storage->set_data_ptr_noswap(at_address(memory, storage->device()));
}

void SlotStorage::release() {
  c10::StorageImpl* storage = storage_.unsafeGetStorageImpl();
  storage->set_data_ptr_noswap(at_address(nullptr, storage->device()));
  set_readable(storage, false, message_);
}

at::Tensor SlotStorage::view(std::int64_t offset, at::IntArrayRef shape,
                             c10::ScalarType dtype) const {
  return tensor_on(storage_, offset, shape, dtype);
}

bool SlotStorage::holds(const at::Tensor& tensor) const {
  return tensor.has_storage() && tensor.storage().unsafeGetStorageImpl() ==
                                     storage_.unsafeGetStorageImpl();
}

/// As from_blob makes one: set_ would look at the address, which a released
/// storage refuses, and would resize storages on meta.
at::Tensor tensor_on(const c10::Storage& storage, std::int64_t offset,
                     at::IntArrayRef shape, c10::ScalarType dtype) {
  const auto options = at::TensorOptions(dtype).device(storage.device());
  at::Tensor tensor = at::detail::make_tensor<c10::TensorImpl>(
      c10::Storage(storage), c10::DispatchKeySet(options.computeDispatchKey()),
      options.dtype());
  c10::TensorImpl* const impl = tensor.unsafeGetTensorImpl();
  impl->set_sizes_contiguous(shape);
  impl->set_storage_offset(offset);
  return tensor;
}

}  // namespace accordion
