// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include <ATen/core/Tensor.h>

namespace accordion {

/// How to find the tensors in a value of type T: `visit` calls `f` with each of
/// them as at::Tensor&, in a fixed order; `f` may assign another.
///
/// Given for tensors, optionals, pairs, tuples, arrays, vectors, maps and
/// variants of such. A type of the user's that a unit's forward takes or
/// returns needs a specialisation:
///
///     template <> struct accordion::TensorTraversal<Output> {
///       static constexpr bool has_tensors = true;
///       template <class F> static void visit(Output& o, F&& f) {
///         accordion::for_each_tensor(o.logits, f);
///         accordion::for_each_tensor(o.cache, f);
///       }
///     };
template <class T>
struct TensorTraversal {
  /// False: no tensor can be inside, as far as Accordion knows.
  static constexpr bool has_tensors = false;
  /// True for types that are known to hold none.
  static constexpr bool known = std::is_arithmetic_v<T> || std::is_enum_v<T> ||
                                std::is_same_v<T, std::string> ||
                                std::is_pointer_v<T> ||
                                std::is_null_pointer_v<T>;
  template <class F>
  static void visit(T&, F&&) {}
};

/// Visits every tensor in `value`.
template <class T, class F>
void for_each_tensor(T& value, F&& f) {
  TensorTraversal<T>::visit(value, f);
}

/// Whether a T (reference and const removed) can hold tensors.
template <class T>
inline constexpr bool has_tensors =
    TensorTraversal<std::remove_cvref_t<T>>::has_tensors;

namespace detail {

template <class T>
constexpr bool traversal_known() {
  if constexpr (std::is_void_v<T>) {
    return true;
  } else if constexpr (requires { TensorTraversal<T>::known; }) {
    return TensorTraversal<T>::known;
  } else {
    return true;  // a specialisation knows its type
  }
}

/// Traversal of a container whose elements can be iterated by reference.
template <class Container, class Element>
struct RangeTraversal {
  static constexpr bool has_tensors = TensorTraversal<Element>::has_tensors;
  static constexpr bool known = traversal_known<Element>();
  template <class F>
  static void visit(Container& container, F&& f) {
    if constexpr (has_tensors) {
      for (auto& element : container) {
        for_each_tensor(element, f);
      }
    }
  }
};

template <class Map, class Value>
struct MapTraversal {
  static constexpr bool has_tensors = TensorTraversal<Value>::has_tensors;
  static constexpr bool known = traversal_known<Value>();
  template <class F>
  static void visit(Map& map, F&& f) {
    if constexpr (has_tensors) {
      for (auto& entry : map) {
        for_each_tensor(entry.second, f);
      }
    }
  }
};

template <class Product, class... Elements>
struct ProductTraversal {
  static constexpr bool has_tensors =
      (TensorTraversal<Elements>::has_tensors || ...);
  static constexpr bool known = (traversal_known<Elements>() && ...);
  template <class F>
  static void visit(Product& product, F&& f) {
    std::apply([&f](auto&... element) { (for_each_tensor(element, f), ...); },
               product);
  }
};

}  // namespace detail

/// An undefined tensor is not visited.
template <>
struct TensorTraversal<at::Tensor> {
  static constexpr bool has_tensors = true;
  template <class F>
  static void visit(at::Tensor& tensor, F&& f) {
    if (tensor.defined()) {
      f(tensor);
    }
  }
};

template <class T>
struct TensorTraversal<std::optional<T>> {
  static constexpr bool has_tensors = TensorTraversal<T>::has_tensors;
  static constexpr bool known = detail::traversal_known<T>();
  template <class F>
  static void visit(std::optional<T>& value, F&& f) {
    if (value) {
      for_each_tensor(*value, f);
    }
  }
};

template <class... T>
struct TensorTraversal<std::variant<T...>> {
  static constexpr bool has_tensors = (TensorTraversal<T>::has_tensors || ...);
  static constexpr bool known = (detail::traversal_known<T>() && ...);
  template <class F>
  static void visit(std::variant<T...>& value, F&& f) {
    std::visit([&f](auto& held) { for_each_tensor(held, f); }, value);
  }
};

template <>
struct TensorTraversal<std::monostate> {
  static constexpr bool has_tensors = false;
  template <class F>
  static void visit(std::monostate&, F&&) {}
};

template <class T, class A>
struct TensorTraversal<std::vector<T, A>>
    : detail::RangeTraversal<std::vector<T, A>, T> {};
template <class T, std::size_t N>
struct TensorTraversal<std::array<T, N>>
    : detail::RangeTraversal<std::array<T, N>, T> {};
template <class K, class V, class C, class A>
struct TensorTraversal<std::map<K, V, C, A>>
    : detail::MapTraversal<std::map<K, V, C, A>, V> {};
template <class K, class V, class H, class E, class A>
struct TensorTraversal<std::unordered_map<K, V, H, E, A>>
    : detail::MapTraversal<std::unordered_map<K, V, H, E, A>, V> {};
template <class... T>
struct TensorTraversal<std::tuple<T...>>
    : detail::ProductTraversal<std::tuple<T...>, T...> {};
template <class A, class B>
struct TensorTraversal<std::pair<A, B>>
    : detail::ProductTraversal<std::pair<A, B>, A, B> {};

}  // namespace accordion
