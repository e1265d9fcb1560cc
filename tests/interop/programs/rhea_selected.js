// Receives what a selector takes, or looks at it: rhea_selected.js PORT ADDRESS SELECTOR COUNT [browse]
'use strict';

const path = require('path');
const container = require(path.join(process.env.ACQUIT_INTEROP_NODE_MODULES, 'rhea'));

const [port, address, selector, count, browse] = process.argv.slice(2);
let left = Number(count);

container.on('message', (context) => {
    if (left === 0) return;
    console.log(context.message.message_id);
    left -= 1;
    if (left === 0) context.connection.close();
});
container.connect({ host: '127.0.0.1', port: port, reconnect: false }).open_receiver({
    source: {
        address: address,
        filter: container.filter.selector(selector),
        distribution_mode: browse ? 'copy' : undefined,
    },
});
