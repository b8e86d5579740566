// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/checkpoint/hugging_face_folder.h"

#include <system_error>

#include <fmt/format.h>

#include "accordion/checkpoint/checkpoint_folder.h"
#include "accordion/checkpoint/durable_file.h"
#include "accordion/checkpoint/weight_copy.h"

namespace accordion {
namespace {

namespace fs = std::filesystem;

/// Without links, dots and a slash at the end, so that a name can be put beside
/// it and given to it.
fs::path resolved(const fs::path& path) {
  const fs::path absolute = fs::weakly_canonical(fs::absolute(path));
  return absolute.has_filename() ? absolute : absolute.parent_path();
}

/// The folder in which files are written; gone with this unless it was renamed.
class UnfinishedFolder {
 public:
  explicit UnfinishedFolder(const fs::path& path)
      : path_(unfinished_folder(path)) {
    std::error_code error;
    fs::remove_all(path_, error);  // of a process that was killed
    if (!error) {
      fs::create_directories(path_, error);
    }
    if (error) {
      throw CheckpointError(fmt::format(
          "[export] '{}' cannot be made: {}. Check the permissions of the "
          "folder around it.",
          path_.string(), error.message()));
    }
  }
  UnfinishedFolder(const UnfinishedFolder&) = delete;
  UnfinishedFolder& operator=(const UnfinishedFolder&) = delete;
  ~UnfinishedFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }

  [[nodiscard]] const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

std::int64_t write_text(const fs::path& path, const std::string& text) {
  DurableFile file(path, static_cast<std::int64_t>(text.size()));
  file.write(text);
  return file.finish().bytes;
}

}  // namespace

void check_can_make_folder(const fs::path& path) {
  const fs::path folder = resolved(path);
  std::error_code error;
  if (fs::exists(folder) &&
      !(fs::is_directory(folder) && fs::is_empty(folder, error) && !error)) {
    throw CheckpointError(
        fmt::format("[export] '{}' exists already and is not empty. Nothing is "
                    "overwritten: choose another path, or remove it first.",
                    folder.string()));
  }
}

WrittenFolder write_hugging_face_folder(const CheckpointReader& checkpoint,
                                        const HuggingFaceFolder& content,
                                        const fs::path& path) {
  check_can_make_folder(path);
  const WeightPlan plan =
      plan_weights(weights_of(checkpoint, content.parameters, content.dtype),
                   content.max_shard_bytes);
  const fs::path folder = resolved(path);
  const UnfinishedFolder unfinished(folder);
  copy_weights(checkpoint, plan, unfinished.path(), content.num_threads);
  WrittenFolder written;
  for (const PlannedFile& file : plan.files) {
    ++written.num_files;
    written.bytes += file.bytes;
  }
  for (const WeightPlan::Tensor& tensor : plan.tensors) {
    written.numel += tensor.entry.numel();
  }
  auto texts = content.texts;
  if (plan.files.size() > 1) {
    texts["model.safetensors.index.json"] = plan.index_text();
  }
  for (const auto& [name, text] : texts) {
    ++written.num_files;
    written.bytes += write_text(unfinished.path() / name, text);
  }
  sync_folder(unfinished.path());
  rename_durably(unfinished.path(), folder);
  return written;
}

}  // namespace accordion
