// The version of an MLX that the shim was not compiled with.
namespace mlx::core {
const char* version() { return "0.33.1"; }
}  // namespace mlx::core
