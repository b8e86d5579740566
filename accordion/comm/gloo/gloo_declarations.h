// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// LibTorch's wheel exports ProcessGroupGloo but lacks the Gloo headers that its
// declaration includes. These are the names which that declaration mentions,
// as Gloo spells them; no object of these types is made or read here. The build
// lays a file that includes this one where each missing header is looked for.
#define USE_C10D_GLOO 1

#include <chrono>
#include <memory>
#include <string>
#include <vector>

namespace gloo {

class Context {
 public:
  void setTimeout(std::chrono::milliseconds timeout);
};

namespace transport {
class Device;
class UnboundBuffer {
 public:
  virtual ~UnboundBuffer();
};
}  // namespace transport

namespace rendezvous {
class Store {
 public:
  virtual ~Store();
  virtual void set(const std::string& key, const std::vector<char>& data) = 0;
  virtual std::vector<char> get(const std::string& key) = 0;
  virtual void wait(const std::vector<std::string>& keys) = 0;
  virtual void wait(const std::vector<std::string>& keys,
                    const std::chrono::milliseconds& timeout) = 0;
};
}  // namespace rendezvous

}  // namespace gloo
