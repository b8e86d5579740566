// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/fsdp/unsharded_storage.h"

#include <algorithm>
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

}  // namespace

UnshardedStorage::UnshardedStorage(c10::Storage resident)
    : storage_(std::move(resident)) {}

UnshardedStorage::UnshardedStorage(std::int64_t bytes,
                                   const std::string& message)
    : storage_(make_storage(bytes)), other_state_(make_storage(bytes)) {
  storage_.unsafeGetStorageImpl()
      ->release_data_and_set_meta_custom_data_ptr_error_msg_(message);
}

void UnshardedStorage::bind(void* memory) {
  c10::StorageImpl* storage = storage_.unsafeGetStorageImpl();
  storage->swap_data_ptr(*other_state_.unsafeGetStorageImpl());
  storage->set_data_ptr_noswap(at_address(memory));
}

void UnshardedStorage::release() {
  c10::StorageImpl* storage = storage_.unsafeGetStorageImpl();
  storage->set_data_ptr_noswap(at_address(nullptr));
  storage->swap_data_ptr(*other_state_.unsafeGetStorageImpl());
}

at::Tensor UnshardedStorage::view(std::int64_t offset, at::IntArrayRef shape,
                                  c10::ScalarType dtype) const {
  if (!other_state_) {
    return tensor_on(storage_, offset, shape, dtype);
  }
  // Made on the storage's bytes, then moved to the storage: set_ would read the
  // address.
  at::Tensor tensor = tensor_on(other_state_, offset, shape, dtype);
  tensor.unsafeGetTensorImpl()->set_storage_keep_dtype(storage_);
  return tensor;
}

bool UnshardedStorage::holds(const at::Tensor& tensor) const {
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
