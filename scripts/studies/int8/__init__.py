"""What each technique of int8 quantization keeps of a network's accuracy, and what it costs."""
