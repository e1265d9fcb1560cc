// SCRAM-SHA-256 (RFC 5802, RFC 7677) as a mechanism for rhea, which has none of its own and lets programs add some.
'use strict';

const crypto = require('crypto');

function hmac(key, text) {
    return crypto.createHmac('sha256', key).update(text).digest();
}

function attributes(message) {
    return Object.fromEntries(message.split(',').map((part) => [part[0], part.slice(2)]));
}

exports.client = function (user, password) {
    const name = user.replace(/=/g, '=3D').replace(/,/g, '=2C');
    const nonce = crypto.randomBytes(18).toString('base64');
    const first = 'n=' + name + ',r=' + nonce;
    return {
        start(callback) {
            callback(undefined, Buffer.from('n,,' + first));
        },
        step(challenge, callback) {
            const said = challenge.toString();
            const { r, s, i } = attributes(said);
            if (!r || !r.startsWith(nonce)) return callback('the nonce of the challenge is not ours');
            const salted = crypto.pbkdf2Sync(password, Buffer.from(s, 'base64'), Number(i), 32, 'sha256');
            const key = hmac(salted, 'Client Key');
            const last = 'c=biws,r=' + r;
            const signature = hmac(crypto.createHash('sha256').update(key).digest(), [first, said, last].join(','));
            const proof = Buffer.from(key.map((byte, index) => byte ^ signature[index])).toString('base64');
            return callback(undefined, Buffer.from(last + ',p=' + proof));
        },
    };
};
