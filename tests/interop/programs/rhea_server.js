// Answers requests in capitals with rhea: rhea_server.js PORT ADDRESS COUNT.
'use strict';

const path = require('path');
const container = require(path.join(process.env.ACQUIT_INTEROP_NODE_MODULES, 'rhea'));

const [port, address] = [process.argv[2], process.argv[3]];
let left = Number(process.argv[4]);
const connection = container.connect({ host: '127.0.0.1', port: port, reconnect: false });
const replies = connection.open_sender({ target: {} });

connection.open_receiver(address);
container.on('message', (context) => {
    const request = context.message;
    replies.send({
        to: request.reply_to,
        correlation_id: request.correlation_id,
        body: request.body.toString().toUpperCase(),
    });
});
container.on('accepted', (context) => {
    left -= 1;
    if (left === 0) context.connection.close();
});
