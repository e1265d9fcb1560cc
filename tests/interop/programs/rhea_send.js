// Sends numbered messages with rhea, the way its users begin: rhea_send.js PORT ADDRESS COUNT.
'use strict';

const path = require('path');
const container = require(path.join(process.env.ACQUIT_INTEROP_NODE_MODULES, 'rhea'));

const [port, address, count] = [process.argv[2], process.argv[3], Number(process.argv[4])];
let sent = 0;
let confirmed = 0;

container.on('sendable', (context) => {
    while (context.sender.sendable() && sent < count) {
        sent += 1;
        context.sender.send({ message_id: sent, body: { sequence: sent } });
    }
});
container.on('accepted', (context) => {
    confirmed += 1;
    if (confirmed === count) {
        console.log(confirmed + ' accepted');
        context.connection.close();
    }
});
container.connect({ host: '127.0.0.1', port: port, reconnect: false }).open_sender(address);
