// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <vector>

namespace accordion {

/// The files that data.path names, in an order that every rank finds alike:
/// entries as they are listed, and the files of a folder or glob sorted by the
/// bytes of their paths.
///
/// An entry is a file; a folder, of which every .txt or .bin below it is taken,
/// save hidden ones; or, where nothing has that name, a glob with *, ? and [].
///
/// Throws std::invalid_argument that names the entry: it finds nothing, or a
///        file that another entry found already
std::vector<std::filesystem::path> find_data_files(
    std::span<const std::string> entries);

/// Whether a file holds token ids: its name ends in ".bin".
bool holds_tokens(const std::filesystem::path& file);

}  // namespace accordion
