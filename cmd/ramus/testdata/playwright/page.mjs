import { createServer } from 'node:http';

createServer((request, response) => {
  response.setHeader('Content-Type', 'text/html; charset=utf-8');
  response.end('<!doctype html><title>Larder</title><ul></ul><button onclick="document.querySelector(\'ul\').append(Object.assign(document.createElement(\'li\'), { textContent: \'Rice\' }))">Add</button>');
}).listen(4173, '127.0.0.1');
