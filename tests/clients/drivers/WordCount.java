/*
 * Kafka Streams counts words with exactly_once_v2: for each word of a line, the count so far goes to
 * the topic of counts. It prints one line when it runs, and runs until it is killed.
 */

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.util.Arrays;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.state.Stores;

public class WordCount {
    public static void main(String[] words) throws Exception {
        JsonNode conf = new ObjectMapper().readTree(words[1]);
        Properties wanted = new Properties();
        wanted.put(StreamsConfig.APPLICATION_ID_CONFIG, conf.get("id").asText());
        wanted.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, conf.get("bootstrap").asText());
        wanted.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2);
        wanted.put(StreamsConfig.STATE_DIR_CONFIG, conf.get("folder").asText());
        wanted.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, "50");
        wanted.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, "0");
        wanted.put(StreamsConfig.NUM_STREAM_THREADS_CONFIG, "2");
        wanted.put(StreamsConfig.consumerPrefix("session.timeout.ms"), conf.get("session_ms").asText());
        wanted.put(StreamsConfig.consumerPrefix("heartbeat.interval.ms"), "500");
        wanted.put(StreamsConfig.consumerPrefix("auto.offset.reset"), "earliest");
        wanted.put(StreamsConfig.consumerPrefix("max.poll.records"), "20");
        StreamsBuilder builder = new StreamsBuilder();
        builder.stream(conf.get("source").asText(), Consumed.with(Serdes.String(), Serdes.String()))
                .flatMapValues(line -> Arrays.asList(line.split(" ")))
                .groupBy((key, word) -> word, Grouped.with(Serdes.String(), Serdes.String()))
                .count(Materialized.<String, Long>as(Stores.inMemoryKeyValueStore("counts"))
                        .withKeySerde(Serdes.String()).withValueSerde(Serdes.Long()))
                .toStream()
                .mapValues((word, count) -> word + " " + count)
                .to(conf.get("topic").asText(), Produced.with(Serdes.String(), Serdes.String()));
        KafkaStreams streams = new KafkaStreams(builder.build(), wanted);
        streams.setUncaughtExceptionHandler(error -> {
            error.printStackTrace();
            return StreamThreadExceptionResponse.REPLACE_THREAD;
        });
        streams.setStateListener((now, before) -> {
            if (now == KafkaStreams.State.RUNNING) {
                System.out.println("{\"running\": true}");
                System.out.flush();
            }
        });
        streams.start();
        Thread.currentThread().join();
    }
}
