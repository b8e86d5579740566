// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/comm/line_prefixer.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

namespace accordion::detail {

void LinePrefixer::pump() {
  std::array<char, 65536> chunk;
  const ssize_t count = read(source_.get(), chunk.data(), chunk.size());
  if (count > 0) {
    pending_.append(chunk.data(), static_cast<std::size_t>(count));
    flush_lines();
  } else if (count == 0 || (errno != EAGAIN && errno != EINTR)) {
    finish();
  }
}

void LinePrefixer::drain() {
  pollfd source{.fd = fd(), .events = POLLIN, .revents = 0};
  while (fd() >= 0 && poll(&source, 1, 0) > 0) {
    pump();
    source.fd = fd();
  }
  finish();
}

void LinePrefixer::finish() {
  if (!pending_.empty()) {
    pending_ += '\n';
    flush_lines();
  }
  source_ = FileDescriptor();
}

void LinePrefixer::flush_lines() {
  std::string out;
  std::size_t start = 0;
  for (std::size_t end = pending_.find('\n'); end != std::string::npos;
       end = pending_.find('\n', start)) {
    out += prefix_;
    out.append(pending_, start, end + 1 - start);
    start = end + 1;
  }
  pending_.erase(0, start);
  write_all(out);
}

void LinePrefixer::write_all(std::string_view text) const {
  while (!text.empty()) {
    const ssize_t count = write(target_, text.data(), text.size());
    if (count < 0 && errno != EINTR) {
      return;  // the disk is full, say; no reason to end the ranks
    }
    text.remove_prefix(static_cast<std::size_t>(std::max<ssize_t>(0, count)));
  }
}

}  // namespace accordion::detail
