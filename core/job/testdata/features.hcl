# Features that are twice there, the label among them, and nothing sparse for DeepFM.
job "ctr" {
  stream "kafka" {
    brokers = ["localhost:9092"]
    topic   = "clicks"
  }
  features {
    format = "JSON"
    label  = "click"
    sparse = ["user", "item", "user", "click", 7, "", null]
    dense  = ["price", "price"]
    weight = "w"
  }
  model {
    batch  = 32
    hidden = []
  }
  workers {
    max = 4
  }
  throughput {
    theta = [0.0002, 0, 0]
  }
  checkpoint {
    dir = "cp"
  }
  backend "local" {
  }
}
