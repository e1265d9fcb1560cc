import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonNull;
import com.google.gson.JsonObject;
import com.google.gson.JsonPrimitive;
import jakarta.jms.BytesMessage;
import jakarta.jms.Destination;
import jakarta.jms.JMSException;
import jakarta.jms.MapMessage;
import jakarta.jms.Message;
import jakarta.jms.MessageEOFException;
import jakarta.jms.ObjectMessage;
import jakarta.jms.Queue;
import jakarta.jms.Session;
import jakarta.jms.StreamMessage;
import jakarta.jms.TextMessage;
import jakarta.jms.Topic;
import java.util.Base64;
import java.util.Enumeration;
import java.util.Map;

/**
 * JMS messages as JSON and back.
 *
 * <p>A value is {@code {"type": "int", "value": 5}} with one of the types of {@link #toJava}; a bare string, number or
 * boolean stands for a string, an int (a long where it needs to be, a double where it has a fraction) or a boolean.
 */
final class Messages {
    private Messages() {}

    // ---- values

    static Object toJava(JsonElement given) {
        if (given.isJsonNull()) {
            return null;
        }
        if (given.isJsonPrimitive()) {
            JsonPrimitive bare = given.getAsJsonPrimitive();
            if (bare.isBoolean()) {
                return bare.getAsBoolean();
            }
            if (bare.isString()) {
                return bare.getAsString();
            }
            if (bare.getAsString().matches("-?\\d+")) {
                long number = bare.getAsLong();
                if (number == (int) number) {
                    return (int) number;
                }
                return number;
            }
            return bare.getAsDouble();
        }
        JsonElement value = given.getAsJsonObject().get("value");
        String type = given.getAsJsonObject().get("type").getAsString();
        switch (type) {
            case "null": return null;
            case "boolean": return value.getAsBoolean();
            case "byte": return value.getAsByte();
            case "short": return value.getAsShort();
            case "int": return value.getAsInt();
            case "long": return value.getAsLong();
            case "float": return value.getAsFloat();
            case "double": return value.getAsDouble();
            case "char": return value.getAsString().charAt(0);
            case "string": return value.getAsString();
            case "bytes": return Base64.getDecoder().decode(value.getAsString());
            default: throw new IllegalArgumentException("no such type: " + type);
        }
    }

    static JsonElement toJson(Object value) {
        JsonObject json = new JsonObject();
        if (value == null) {
            json.addProperty("type", "null");
            json.add("value", JsonNull.INSTANCE);
        } else if (value instanceof byte[]) {
            json.addProperty("type", "bytes");
            json.addProperty("value", Base64.getEncoder().encodeToString((byte[]) value));
        } else if (value instanceof Character) {
            json.addProperty("type", "char");
            json.addProperty("value", value.toString());
        } else if (value instanceof Number) {
            json.addProperty("type", value instanceof Integer ? "int" : value.getClass().getSimpleName().toLowerCase());
            json.addProperty("value", (Number) value);
        } else if (value instanceof Boolean) {
            json.addProperty("type", "boolean");
            json.addProperty("value", (Boolean) value);
        } else {
            json.addProperty("type", "string");
            json.addProperty("value", value.toString());
        }
        return json;
    }

    // ---- messages

    static Message toMessage(Session session, JsonObject given, Destination replyTo) throws JMSException {
        Message message = withBody(session, given);
        if (given.has("properties")) {
            for (Map.Entry<String, JsonElement> entry : given.getAsJsonObject("properties").entrySet()) {
                message.setObjectProperty(entry.getKey(), toJava(entry.getValue()));
            }
        }
        if (given.has("correlation_id")) {
            message.setJMSCorrelationID(given.get("correlation_id").getAsString());
        }
        if (given.has("jms_type")) {
            message.setJMSType(given.get("jms_type").getAsString());
        }
        if (replyTo != null) {
            message.setJMSReplyTo(replyTo);
        }
        return message;
    }

    private static Message withBody(Session session, JsonObject given) throws JMSException {
        if (given.has("text")) {
            return session.createTextMessage(given.get("text").getAsString());
        }
        if (given.has("bytes")) {
            BytesMessage message = session.createBytesMessage();
            message.writeBytes(Base64.getDecoder().decode(given.get("bytes").getAsString()));
            return message;
        }
        if (given.has("map")) {
            MapMessage message = session.createMapMessage();
            for (Map.Entry<String, JsonElement> entry : given.getAsJsonObject("map").entrySet()) {
                message.setObject(entry.getKey(), toJava(entry.getValue()));
            }
            return message;
        }
        if (given.has("stream")) {
            StreamMessage message = session.createStreamMessage();
            for (JsonElement value : given.getAsJsonArray("stream")) {
                message.writeObject(toJava(value));
            }
            return message;
        }
        if (given.has("object")) {
            return session.createObjectMessage((java.io.Serializable) toJava(given.get("object")));
        }
        return session.createMessage();
    }

    /** Headers, properties and body of a message, as it was sent or received. */
    static JsonObject toJson(Message message) throws JMSException {
        JsonObject json = headers(message);
        JsonObject properties = new JsonObject();
        Enumeration<?> names = message.getPropertyNames();
        while (names.hasMoreElements()) {
            String name = names.nextElement().toString();
            properties.add(name, toJson(message.getObjectProperty(name)));
        }
        json.add("properties", properties);
        if (message instanceof TextMessage) {
            json.addProperty("text", ((TextMessage) message).getText());
        } else if (message instanceof BytesMessage) {
            BytesMessage bytes = (BytesMessage) message;
            byte[] body = new byte[(int) bytes.getBodyLength()];
            bytes.readBytes(body);
            json.addProperty("bytes", Base64.getEncoder().encodeToString(body));
        } else if (message instanceof MapMessage) {
            JsonObject map = new JsonObject();
            Enumeration<?> keys = ((MapMessage) message).getMapNames();
            while (keys.hasMoreElements()) {
                String key = keys.nextElement().toString();
                map.add(key, toJson(((MapMessage) message).getObject(key)));
            }
            json.add("map", map);
        } else if (message instanceof StreamMessage) {
            json.add("stream", values((StreamMessage) message));
        } else if (message instanceof ObjectMessage) {
            json.add("object", toJson(((ObjectMessage) message).getObject()));
        }
        return json;
    }

    private static JsonArray values(StreamMessage message) throws JMSException {
        JsonArray values = new JsonArray();
        while (true) {
            try {
                values.add(toJson(message.readObject()));
            } catch (MessageEOFException end) {
                return values;
            }
        }
    }

    static JsonObject headers(Message message) throws JMSException {
        JsonObject json = new JsonObject();
        json.addProperty("id", message.getJMSMessageID());
        json.addProperty("timestamp", message.getJMSTimestamp());
        json.addProperty("expiration", message.getJMSExpiration());
        json.addProperty("delivery_time", message.getJMSDeliveryTime());
        json.addProperty("priority", message.getJMSPriority());
        json.addProperty("delivery_mode", message.getJMSDeliveryMode());
        json.addProperty("correlation_id", message.getJMSCorrelationID());
        json.addProperty("jms_type", message.getJMSType());
        json.addProperty("redelivered", message.getJMSRedelivered());
        if (message.propertyExists("JMSXDeliveryCount")) {
            json.addProperty("delivery_count", message.getIntProperty("JMSXDeliveryCount"));
        }
        json.addProperty("destination", name(message.getJMSDestination()));
        json.addProperty("reply_to", name(message.getJMSReplyTo()));
        return json;
    }

    static String name(Destination destination) throws JMSException {
        if (destination == null) {
            return null;
        }
        if (destination instanceof Queue) {
            return "queue:" + ((Queue) destination).getQueueName();
        }
        return "topic:" + ((Topic) destination).getTopicName();
    }
}
