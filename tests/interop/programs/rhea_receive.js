// Receives messages with rhea's defaults (credit window, accepted by itself): rhea_receive.js PORT ADDRESS COUNT.
'use strict';

const path = require('path');
const container = require(path.join(process.env.ACQUIT_INTEROP_NODE_MODULES, 'rhea'));

const [port, address, count] = [process.argv[2], process.argv[3], Number(process.argv[4])];
let received = 0;

container.on('message', (context) => {
    received += 1;
    if (received <= count) console.log(context.message.message_id, JSON.stringify(context.message.body));
    if (received === count) {
        context.receiver.close();
        context.connection.close();
    }
});
container.connect({ host: '127.0.0.1', port: port, reconnect: false }).open_receiver(address);
