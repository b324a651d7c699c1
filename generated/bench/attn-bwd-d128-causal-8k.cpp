// Two rows of 8,192 tokens, heads of 128.

#include "labs/gpu/attention_backward_bench.inl"

int main(int argc, char** argv) {
  return rose::labs::attention_backward_bench(argc, argv, 2, 8192, 16, 128);
}
