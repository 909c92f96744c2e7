# Histories and seasons that do not fit, and a model file that is not there.
job "ctr" {
  stream "kafka" {
    brokers = ["localhost:9092"]
    topic   = "clicks"
  }
  features {
    label  = "click"
    sparse = ["user", "item"]
  }
  workers {
    max = 4
  }
  throughput {
    theta = [0.0002, 0, 0]
  }
  forecast {
    interval    = "7m"
    horizon     = "35m"
    season      = ["24h", "21h"]
    history     = "12h"
    gate_window = "5m"
    model       = "traffic.onnx"
  }
  checkpoint {
    dir = "cp"
  }
  backend "local" {
  }
}
